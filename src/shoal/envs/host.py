"""The contract of a game on the host, and the table that plays several of them.

A `Match` is one game in plain Python and numpy, as an adapter makes it from somebody's environment. A `Table` plays
some matches side by side and keeps the promises of the stream (`types.py`) for them: it opens a match anew on the step
after its end, gives every episode its own seed, and when a match breaks it says how, makes it anew and goes on.
Nothing here needs JAX: this is what the worker processes run.
"""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import IO, Any, NamedTuple, Protocol

import numpy as np

from ..types import Discrete, ShoalError, Spec

WORDS = {"obs": "observation"}  # what a user calls a field
TRIES = 5  # to open a match again after it broke


class Glance(NamedTuple):
    """What one team receives at one instant of one match: a `View` without the games axis."""

    obs: np.ndarray  # [N,F] float32, or uint8 where the spec says pixels
    legal: np.ndarray  # [N,A] bool
    alive: np.ndarray  # [N] bool
    reward: np.ndarray  # [N] float32
    discount: np.ndarray  # [N] float32


class Moment(NamedTuple):
    """One instant of a match."""

    teams: dict[str, Glance]
    state: np.ndarray  # [S] float32
    over: bool  # the episode has ended with this instant


class Match(Protocol):
    """One game on the host."""

    teams: dict[str, Spec]

    def reset(self, seed: int) -> Moment:
        """Open an episode; equal seeds open equal ones."""
        ...

    def step(self, actions: dict[str, np.ndarray]) -> Moment:
        """Advance by an action of every agent of every team: `[N]` int32 (Discrete) or `[N,A]` float32 (Box)."""
        ...

    def render(self) -> np.ndarray:
        """A picture of this instant, `[H,W,3]` uint8; only of a match that was opened for it."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


class Broken(Exception):
    """A match that does not keep the contract; the message says what it broke and for whom."""


@dataclass(frozen=True)
class Hosted:
    """An environment on the host, by its id: who plays, and how to open a match of it."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    told: dict[str, Spec] | None = field(default=None, compare=False)  # who plays, where that is known already
    draws: bool = False  # its matches can be looked at

    @cached_property
    def teams(self) -> dict[str, Spec]:
        if self.told:
            return self.told
        match = self.open()
        match.close()
        return match.teams

    @property
    def stateless(self) -> Hosted:
        """The same for those who do not look at its state, which may be slow to make: it has none."""
        return replace(self, options=self.options | {"state": None}, told=None)

    def open(self) -> Match:
        """A match."""
        from .adapters import open_match

        return open_match(self.name, self.options, self.draws)


class Fault(NamedTuple):
    """How a match broke."""

    env: str
    game: int
    episode: int
    seed: int
    step: int  # of the episode
    report: str  # the traceback, or what happened to the process

    @property
    def where(self) -> str:
        return f"{self.env}, game {self.game}, episode {self.episode}, seed {self.seed}, step {self.step}"

    def __str__(self) -> str:
        return f"{self.where}: {self.report}"


class TooManyFaults(ShoalError):
    """An environment broke more often than can be borne."""

    exit_code = 1

    def __init__(self, sentence: str, last: Fault):
        super().__init__(f"{sentence} in {last.where}")
        self.detail = last.report


def layout(teams: dict[str, Spec], games: int) -> dict[str, tuple[tuple[int, ...], type]]:
    """Shape and type of every array matches are written to: `<team>/<field>`, or a field of the match itself."""
    arrays: dict[str, tuple[tuple[int, ...], type]] = {
        "state": ((games, next(iter(teams.values())).state), np.float32),
        "first": ((games,), np.bool_),  # this instant opens an episode
        "over": ((games,), np.bool_),  # this one ends it
        "broken": ((games,), np.bool_),  # the episode before this opening broke
        "episode": ((games,), np.int64),  # how many have been opened
        "taken": ((games,), np.int64),  # steps of the one under way
        "busy": ((games,), np.bool_),  # it is being stepped right now
    }
    for team, spec in teams.items():
        agents, size = (games, spec.n), spec.action.size
        arrays |= {
            f"{team}/obs": ((*agents, spec.obs), np.uint8 if spec.pixels else np.float32),
            f"{team}/legal": ((*agents, size), np.bool_),
            f"{team}/alive": (agents, np.bool_),
            f"{team}/reward": (agents, np.float32),
            f"{team}/discount": (agents, np.float32),
            f"{team}/action": (agents, np.int32)
            if isinstance(spec.action, Discrete)
            else ((*agents, size), np.float32),
        }
    return arrays


def shared(memory: IO[bytes], teams: dict[str, Spec], games: int) -> dict[str, np.ndarray]:
    """The arrays of `layout` in a file that several processes have open; all zeros when it is new."""
    places, size = {}, 0
    for name, (shape, kind) in layout(teams, games).items():
        places[name] = (shape, kind, size)
        size += -(-int(np.prod(shape)) * np.dtype(kind).itemsize // 64) * 64  # no two in one cache line
    memory.truncate(max(size, os.fstat(memory.fileno()).st_size))
    block = mmap.mmap(memory.fileno(), size)
    return {name: np.ndarray(shape, kind, block, offset) for name, (shape, kind, offset) in places.items()}


def seed_of(run: int, game: int, episode: int) -> int:
    """The seed of an episode: whoever plays the game, it is the same."""
    return int(np.random.SeedSequence((run, game, episode)).generate_state(1)[0] % 2**31)


class Table:
    """Plays some of the games whose arrays it is given."""

    def __init__(self, env: Hosted, arrays: dict[str, np.ndarray], games: range, seed: int):
        self.env, self.arrays, self.games, self.seed = env, arrays, games, seed
        self.matches: dict[int, Match] = {}
        self.watched = arrays["state"].size > 0
        self.sides = [
            (team, spec, [arrays[f"{team}/{name}"] for name in Glance._fields]) for team, spec in env.teams.items()
        ]

    def step(self) -> list[Fault]:
        """One step of every match; one that has ended, or has not been opened yet, opens an episode instead."""
        faults = []
        for game in self.games:
            self.arrays["busy"][game] = True
            faults += self._step(game)
            self.arrays["busy"][game] = False
        return faults

    def close(self) -> None:
        for game in self.games:
            self._drop(game)

    def _step(self, game: int) -> Iterator[Fault]:
        self.arrays["broken"][game] = False
        fresh = game not in self.matches or bool(self.arrays["over"][game])
        fault = None
        for _ in range(TRIES):
            try:
                self._write(game, self._open(game) if fresh else self._advance(game), fresh)
                return
            except (Exception, SystemExit) as error:
                fault = self._fault(game, error)
            yield fault
            self._drop(game)
            self.arrays["broken"][game] |= not fresh
            fresh = True
        assert fault
        raise TooManyFaults(f"a match broke {TRIES} times in a row and cannot be opened again, the last time", fault)

    def _open(self, game: int) -> Moment:
        self.arrays["episode"][game] += 1
        self.arrays["taken"][game] = 0
        if game not in self.matches:
            self.matches[game] = self.env.open()
        return self.matches[game].reset(self._seed(game))

    def _advance(self, game: int) -> Moment:
        self.arrays["taken"][game] += 1
        return self.matches[game].step({team: self.arrays[f"{team}/action"][game] for team in self.env.teams})

    def _seed(self, game: int) -> int:
        return seed_of(self.seed, game, int(self.arrays["episode"][game]))

    def _drop(self, game: int) -> None:
        with contextlib.suppress(Exception, SystemExit):  # it may be broken: what closing it says does not matter
            match = self.matches.pop(game, None)
            if match is not None:
                match.close()

    def _fault(self, game: int, error: BaseException) -> Fault:
        lines = [str(error)] if isinstance(error, Broken) else traceback.format_exception(error, limit=-8)
        about = (int(self.arrays["episode"][game]), self._seed(game), int(self.arrays["taken"][game]))
        return Fault(self.env.name, game, *about, "".join(lines))

    def _write(self, game: int, moment: Moment, first: bool) -> None:
        for team, spec, places in self.sides:
            glance = moment.teams[team]
            for name, place, value in zip(Glance._fields, places, glance, strict=True):
                self._put(place, game, value, f"the {WORDS.get(name, name)} of", spec.agents)
            if isinstance(spec.action, Discrete) and not glance.legal.all():
                stuck = glance.alive & ~glance.legal.any(-1)
                if stuck.any():
                    raise Broken(f"{spec.agents[int(stuck.argmax())]} is alive and has no legal action")
        if self.watched:
            self._put(self.arrays["state"], game, moment.state, "the state", ())
        self.arrays["first"][game], self.arrays["over"][game] = first, moment.over

    def _put(self, place: np.ndarray, game: int, value: np.ndarray, what: str, agents: tuple[str, ...]) -> None:
        kept, value = place[game], np.asarray(value)
        if value.shape != kept.shape:
            whose = f" the {len(agents)} agents" if agents else ""
            raise Broken(f"{what}{whose} has shape {value.shape}, where {kept.shape} was promised")
        kept[...] = value  # a number too large for it is infinite there
        if kept.dtype.kind == "f" and not _finite(kept):
            row = int((~np.isfinite(kept)).reshape(max(len(agents), 1), -1).any(-1).argmax())
            numbers = (value[row] if agents else value).tolist()
            raise Broken(f"{what}{f' {agents[row]}' if agents else ''} is not finite: {numbers}"[:500])


def _finite(numbers: np.ndarray) -> bool:
    """Whether all are; their squares tell it in one call, unless some are huge."""
    flat = numbers.reshape(-1)
    return math.isfinite(flat.dot(flat)) or bool(np.isfinite(flat).all())

"""The contract of a game on the host, and the table that plays several of them.

A `Match` is one game in plain Python and numpy, as an adapter makes it from somebody's environment. A `Table` plays
some matches side by side and keeps the promises of the stream (`types.py`) for them: it opens a match anew on the step
after its end, gives every episode its own seed, and when a match breaks it says how, makes it anew and goes on.
Nothing here needs JAX: this is what the worker processes run.
"""

from __future__ import annotations

import base64
import contextlib
import math
import mmap
import os
import traceback
import zlib
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


class Mismatch(ShoalError):
    """A match that is not played by those who were agreed on: nothing that it shows could be told apart."""


@dataclass(frozen=True)
class Hosted:
    """An environment on the host, by its id: who plays, and how to open a match of it."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    told: dict[str, Spec] | None = field(default=None, compare=False)  # who plays, where that is known already
    draws: bool = False  # its matches can be looked at
    watched: bool = field(default=False, compare=False)  # a process of its own tells who plays, not this one
    patience: float = field(default=60.0, compare=False)  # seconds that it has for that

    @cached_property
    def teams(self) -> dict[str, Spec]:
        return self.told or self.try_out()

    def try_out(self) -> dict[str, Spec]:
        """Open a match and close it again: who plays. One that is to be drawn must show a picture."""
        from .watched import probe

        if self.watched:
            return probe(self.name, self.options, self.patience, self.draws)
        match = self.open()
        try:
            return self.seen(match)
        finally:
            close(match)

    @property
    def stateless(self) -> Hosted:
        """The same for those who do not look at its state, which may be slow to make: it has none."""
        return replace(self, options=self.options | {"state": None}, told=_stateless(self.teams))

    def open(self) -> Match:
        """A match, played by those who were told of before."""
        from .adapters import open_match

        match = open_match(self.name, self.options, self.draws)
        if self.told:
            self._compare(match)
        return match

    def seen(self, match: Match) -> dict[str, Spec]:
        """Who plays in a match, if it can be learnt from; one that is to be drawn is."""
        for team, spec in match.teams.items():
            if not spec.obs:
                raise ShoalError(
                    f"{self.name} shows team {team!r} nothing at all (observations of size 0): give its agents at"
                    " least one number to see, such as a 0"
                )
        if self.draws:
            try:
                match.reset(0)
                match.render()
            except Exception as error:
                what = str(error) if isinstance(error, Broken | ShoalError) else f"{type(error).__name__}: {error}"
                raise ShoalError(f"{self.name} cannot be drawn: {what}") from error
        return match.teams

    def _compare(self, match: Match) -> None:
        found = _stateless(match.teams) if self.options.get("state", True) is None else match.teams
        what = unlike(self.teams, found)
        if what:
            close(match)
            raise Mismatch(
                f"{self.name} is not the same each time it is made: {what}; agents, their order and their spaces"
                " must be fixed (a set has no order)"
            )


def close(match: Match) -> None:
    """It may be broken: what closing it says does not matter."""
    with contextlib.suppress(Exception, SystemExit):
        match.close()


def unlike(agreed: dict[str, Spec], found: dict[str, Spec]) -> str:
    """The first thing in which those who play are not those who were agreed on; empty if there is none."""
    if list(agreed) != list(found):
        return f"it has the teams {', '.join(found)}, where it had {', '.join(agreed)}"
    for team, spec in agreed.items():
        for name, told in vars(spec).items():
            now = getattr(found[team], name)
            if now != told:
                return f"team {team!r} has the {FACTS.get(name, name)} {_told(now)}, where it had {_told(told)}"
    return ""


FACTS = {  # of a spec, as a user calls them
    "obs": "observation size",
    "state": "state size",
    "action": "action space",
    "obs_sizes": "observation sizes",
    "action_sizes": "action sizes",
    "rivals": "size of rivals' actions",
    "pixels": "image size",
    "joined": "joined state",
}


def _told(fact: Any) -> str:
    return (", ".join(map(str, fact)) or "none") if isinstance(fact, tuple) else str(fact)


def _stateless(teams: dict[str, Spec]) -> dict[str, Spec]:
    return {team: replace(spec, state=0, joined=False) for team, spec in teams.items()}


def to_json(teams: dict[str, Spec]) -> dict[str, Any]:
    """Who plays, as plain JSON values."""
    return {team: spec.to_json() for team, spec in teams.items()}


def from_json(plain: dict[str, Any]) -> dict[str, Spec]:
    """What `to_json` wrote."""
    return {team: Spec.from_json(spec) for team, spec in plain.items()}


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
        "making": ((games,), np.bool_),  # it is being made right now
        "shown": ((games,), np.bool_),  # it is to be drawn
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
    arrays, offset, size = {}, 0, room(teams, games)
    if os.fstat(memory.fileno()).st_size < size:
        memory.truncate(size)
    block = mmap.mmap(memory.fileno(), size)
    for name, (shape, kind) in layout(teams, games).items():
        arrays[name] = np.ndarray(shape, kind, block, offset)
        offset += _bytes(shape, kind)
    return arrays


def room(teams: dict[str, Spec], games: int) -> int:
    """Bytes of the arrays of `layout`."""
    return sum(_bytes(shape, kind) for shape, kind in layout(teams, games).values())


def _bytes(shape: tuple[int, ...], kind: type) -> int:
    return -(-int(np.prod(shape)) * np.dtype(kind).itemsize // 64) * 64  # no two in one cache line


def seed_of(run: int, game: int, episode: int) -> int:
    """The seed of an episode: whoever plays the game, it is the same."""
    return int(np.random.SeedSequence((run, game, episode)).generate_state(1)[0] % 2**31)


class Table:
    """Plays some of the games whose arrays it is given."""

    def __init__(self, env: Hosted, arrays: dict[str, np.ndarray], games: range, seed: int):
        self.env, self.arrays, self.games, self.seed = replace(env, told=env.teams), arrays, games, seed
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

    def draw(self) -> list[tuple[int, tuple[int, ...], str]]:
        """Of every match that is shown: its game, and its picture's shape and packed bytes."""
        pictures = []
        for game in self.games:
            if self.arrays["shown"][game]:
                try:
                    picture = np.asarray(self.matches[game].render(), np.uint8)
                except Exception as error:
                    raise TooManyFaults("a match cannot be drawn", self._fault(game, error)) from error
                packed = zlib.compress(picture.tobytes(), 1)
                pictures.append((game, picture.shape, base64.b64encode(packed).decode()))
        return pictures

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
            except BaseException as error:  # also SystemExit, and what compiled languages raise
                if isinstance(error, KeyboardInterrupt | Mismatch) or self._cannot(error):
                    raise
                fault = self._fault(game, error)
            yield fault
            self._drop(game)
            self.arrays["broken"][game] |= not fresh
            fresh = True
        assert fault
        raise TooManyFaults(f"a match broke {TRIES} times in a row and cannot be opened again, the last time", fault)

    def _cannot(self, error: BaseException) -> bool:
        """Whether it says that there is no such environment, before any has been seen."""
        unseen = not self.matches and self.arrays["episode"][self.games].max() <= 1
        return isinstance(error, ShoalError) and bool(unseen)

    def _open(self, game: int) -> Moment:
        self.arrays["episode"][game] += 1
        self.arrays["taken"][game] = 0
        if game not in self.matches:
            self.arrays["making"][game] = True
            try:
                self.matches[game] = self.env.open()
            finally:
                self.arrays["making"][game] = False
        return self.matches[game].reset(self._seed(game))

    def _advance(self, game: int) -> Moment:
        self.arrays["taken"][game] += 1
        return self.matches[game].step({team: self.arrays[f"{team}/action"][game] for team in self.env.teams})

    def _seed(self, game: int) -> int:
        return seed_of(self.seed, game, int(self.arrays["episode"][game]))

    def _drop(self, game: int) -> None:
        match = self.matches.pop(game, None)
        if match is not None:
            close(match)

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

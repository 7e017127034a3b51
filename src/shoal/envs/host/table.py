"""Plays several matches as a stream that resets on the next step (`types.py`).

A `Table` resets a match (`match.py`) on the step after its end and gives every episode its own
seed. When a match breaks, it reports the fault, creates the match again and goes on.
"""

from __future__ import annotations

import base64
import math
import os
import traceback
import zlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import ShoalError
from ...types import Box, Spec
from .faults import Fault, TooManyFaults
from .match import Broken, Hosted, Match, MatchStep, Mismatch, TeamStep, close, measured
from .parts import ALL, part_of
from .shared import METRICS

WORDS = {"obs": "observation"}  # user-facing names of fields
TRIES = 5  # attempts to reopen a match that broke
PackedPicture = tuple[int, tuple[int, ...], str]  # game, shape, and compressed bytes as base64


def seed_of(run: int, game: int, episode: int) -> int:
    """The seed of an episode, independent of which worker plays it."""
    return int(np.random.SeedSequence((run, game, episode)).generate_state(1)[0] % 2**31)


class Table:
    """Plays some games and writes to their rows of the arrays."""

    def __init__(self, env: Hosted, arrays: dict[str, np.ndarray], games: range, seed: int):
        self.metrics = env.metrics if METRICS in arrays else ()
        self.env = replace(env, specs=env.teams, metric_names=self.metrics)
        self.arrays = arrays
        self.games = games
        self.seed = seed
        self.matches: dict[int, Match] = {}
        self.owner = os.getpid()
        self.states = {}
        if arrays["state"].size > 0:
            self.states = {game: Row(arrays["state"][game], "the state") for game in games}
        self.sides = {
            game: [
                (team, spec, [_row(arrays, game, team, spec, name) for name in TeamStep._fields])
                for team, spec in env.teams.items()
            ]
            for game in games
        }

    def step(self, part: int = ALL) -> list[Fault]:
        """Step every match of a part, or open its next episode; return the faults."""
        faults = []
        for game in part_of(self.games, part):
            self.arrays["busy"][game] = True
            faults += self._step(game)
            self.arrays["busy"][game] = False
        return faults

    def render(self) -> list[PackedPicture]:
        """Pictures of the matches that are marked as `shown`."""
        pictures = []
        for game in self.games:
            if self.arrays["shown"][game]:
                try:
                    picture = np.asarray(self.matches[game].render(), np.uint8)
                except Exception as error:
                    raise TooManyFaults(
                        "a match cannot be drawn", self._fault(game, error)
                    ) from error
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
                instant = self._open(game) if fresh else self._advance(game)
                self._end_strays()
                self._write(game, instant, fresh)
                if instant.over and self.metrics:
                    self.arrays[METRICS][game] = measured(self.matches[game], self.metrics)
                return
            except BaseException as error:  # also SystemExit, and what extension modules raise
                self._end_strays()
                if isinstance(error, KeyboardInterrupt | Mismatch) or self._is_missing(error):
                    raise
                fault = self._fault(game, error)
            yield fault
            self._drop(game)
            self.arrays["broken"][game] |= not fresh
            fresh = True
        assert fault
        raise TooManyFaults(
            f"a match broke {TRIES} times in a row and cannot be opened again, the last time", fault
        )

    def _end_strays(self) -> None:
        """End this process if it is an environment's forked child: it would repeat everything."""
        if os.getpid() != self.owner:
            os._exit(1)

    def _is_missing(self, error: BaseException) -> bool:
        """Whether the environment does not exist: the very first opening raised a `ShoalError`."""
        unseen = not self.matches and self.arrays["episode"][self.games].max() <= 1
        return isinstance(error, ShoalError) and bool(unseen)

    def _open(self, game: int) -> MatchStep:
        self.arrays["episode"][game] += 1
        self.arrays["taken"][game] = 0
        if game not in self.matches:
            self.arrays["creating"][game] = True
            try:
                self.matches[game] = self.env.open()
            finally:
                self.arrays["creating"][game] = False
        return self.matches[game].reset(self._seed(game))

    def _advance(self, game: int) -> MatchStep:
        self.arrays["taken"][game] += 1
        return self.matches[game].step(
            {team: self.arrays[f"{team}/action"][game] for team in self.env.teams}
        )

    def _seed(self, game: int) -> int:
        return seed_of(self.seed, game, int(self.arrays["episode"][game]))

    def _drop(self, game: int) -> None:
        match = self.matches.pop(game, None)
        if match is not None:
            close(match)

    def _fault(self, game: int, error: BaseException) -> Fault:
        lines = (
            [str(error)]
            if isinstance(error, Broken)
            else traceback.format_exception(error, limit=-8)
        )
        about = (
            int(self.arrays["episode"][game]),
            self._seed(game),
            int(self.arrays["taken"][game]),
        )
        return Fault(self.env.name, game, *about, "".join(lines))

    def _write(self, game: int, instant: MatchStep, first: bool) -> None:
        for team, spec, rows in self.sides[game]:
            seen = instant.teams[team]
            for row, value in zip(rows, seen, strict=True):
                row.write(value)
            some = np.count_nonzero(seen.legal) < seen.legal.size
            if some and not isinstance(spec.action, Box):
                free = [part.any(-1) for part in spec.action.split(seen.legal)]
                stuck = seen.alive & ~np.all(free, 0)
                if stuck.any():
                    raise Broken(
                        f"{spec.agents[int(stuck.argmax())]} is alive and has no legal action:"
                        " allow it at least one"
                    )
        if self.states:
            self.states[game].write(instant.state)
        self.arrays["first"][game] = first
        self.arrays["over"][game] = instant.over


class Row:
    """A game's row of an array. What cannot change is written once."""

    def __init__(self, place: np.ndarray, what: str, agents: tuple[str, ...] = ()):
        self.place = place
        self.flat = place.reshape(-1)
        self.real = place.dtype.kind == "f"
        self.what = what
        self.agents = agents
        self.written: Any = self  # what is there and cannot change; nothing yet

    def write(self, value: np.ndarray) -> None:
        """Write a value of the right shape whose numbers are finite."""
        if value is self.written:
            return
        row = np.asarray(value)
        if row.shape != self.place.shape:
            whose = f" the {len(self.agents)} agents" if self.agents else ""
            raise Broken(
                f"{self.what}{whose} has shape {row.shape}, where {self.place.shape} was promised"
            )
        self.place[...] = row  # overflow becomes infinity
        if self.real and not _finite(self.flat):
            raise Broken(self._not_finite(row))
        fixed = row is value and not row.flags.writeable and row.base is None
        self.written = value if fixed else self

    def _not_finite(self, value: np.ndarray) -> str:
        agents = self.agents
        row = int((~np.isfinite(self.place)).reshape(max(len(agents), 1), -1).any(-1).argmax())
        numbers = (value[row] if agents else value).tolist()
        return f"{self.what}{f' {agents[row]}' if agents else ''} is not finite: {numbers}"[:500]


def _row(arrays: dict[str, np.ndarray], game: int, team: str, spec: Spec, name: str) -> Row:
    return Row(arrays[f"{team}/{name}"][game], f"the {WORDS.get(name, name)} of", spec.agents)


def _finite(flat: np.ndarray) -> bool:
    """Whether all numbers are finite.

    The sum of squares is a fast test; huge numbers overflow it.
    """
    return math.isfinite(flat.dot(flat)) or bool(np.isfinite(flat).all())

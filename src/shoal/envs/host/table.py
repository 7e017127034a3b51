"""The contract of a game on the host, and the table that plays several of them.

A `Match` is one game in plain Python and numpy, as an adapter makes it from somebody's environment.
A `Table` plays some matches side by side and keeps the promises of the stream (`types.py`) for
them: it opens a match anew on the step after its end, gives every episode its own seed, and when a
match breaks it says how, makes it anew and goes on. Nothing here needs JAX: this is what the worker
processes run.
"""

from __future__ import annotations

import base64
import math
import os
import traceback
import zlib
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from ...errors import ShoalError
from ...types import Discrete
from .faults import Fault, TooManyFaults
from .match import Broken, Hosted, Match, MatchStep, Mismatch, TeamStep, close, measured
from .shared import METRICS

WORDS = {"obs": "observation"}  # what a user calls a field
TRIES = 5  # to open a match again after it broke


def seed_of(run: int, game: int, episode: int) -> int:
    """The seed of an episode: whoever plays the game, it is the same."""
    return int(np.random.SeedSequence((run, game, episode)).generate_state(1)[0] % 2**31)


class Table:
    """Plays some of the games whose arrays it is given."""

    def __init__(self, env: Hosted, arrays: dict[str, np.ndarray], games: range, seed: int):
        self.metrics = env.metrics if METRICS in arrays else ()
        self.env = replace(env, told=env.teams, said=self.metrics)
        self.arrays = arrays
        self.games = games
        self.seed = seed
        self.matches: dict[int, Match] = {}
        self.owner = os.getpid()
        self.watched = arrays["state"].size > 0
        self.sides = [
            (team, spec, [arrays[f"{team}/{name}"] for name in TeamStep._fields])
            for team, spec in env.teams.items()
        ]

    def step(self) -> list[Fault]:
        """One step of every match; one that has ended, or has not been opened yet, opens an episode
        instead."""
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
                moment = self._open(game) if fresh else self._advance(game)
                self._end_strays()
                self._write(game, moment, fresh)
                if moment.over and self.metrics:
                    self.arrays[METRICS][game] = measured(self.matches[game], self.metrics)
                return
            except BaseException as error:  # also SystemExit, and what compiled languages raise
                self._end_strays()
                if isinstance(error, KeyboardInterrupt | Mismatch) or self._cannot(error):
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
        """End here if an environment has forked and this is its child: what it writes would be
        written twice."""
        if os.getpid() != self.owner:
            os._exit(1)

    def _cannot(self, error: BaseException) -> bool:
        """Whether it says that there is no such environment, before any has been seen."""
        unseen = not self.matches and self.arrays["episode"][self.games].max() <= 1
        return isinstance(error, ShoalError) and bool(unseen)

    def _open(self, game: int) -> MatchStep:
        self.arrays["episode"][game] += 1
        self.arrays["taken"][game] = 0
        if game not in self.matches:
            self.arrays["making"][game] = True
            try:
                self.matches[game] = self.env.open()
            finally:
                self.arrays["making"][game] = False
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

    def _write(self, game: int, moment: MatchStep, first: bool) -> None:
        for team, spec, places in self.sides:
            glance = moment.teams[team]
            for name, place, value in zip(TeamStep._fields, places, glance, strict=True):
                self._put(place, game, value, f"the {WORDS.get(name, name)} of", spec.agents)
            if isinstance(spec.action, Discrete) and not glance.legal.all():
                stuck = glance.alive & ~glance.legal.any(-1)
                if stuck.any():
                    raise Broken(
                        f"{spec.agents[int(stuck.argmax())]} is alive and has no legal action"
                    )
        if self.watched:
            self._put(self.arrays["state"], game, moment.state, "the state", ())
        self.arrays["first"][game] = first
        self.arrays["over"][game] = moment.over

    def _put(
        self, place: np.ndarray, game: int, value: np.ndarray, what: str, agents: tuple[str, ...]
    ) -> None:
        kept = place[game]
        value = np.asarray(value)
        if value.shape != kept.shape:
            whose = f" the {len(agents)} agents" if agents else ""
            raise Broken(f"{what}{whose} has shape {value.shape}, where {kept.shape} was promised")
        kept[...] = value  # a number too large for it is infinite there
        if kept.dtype.kind == "f" and not _finite(kept):
            row = int((~np.isfinite(kept)).reshape(max(len(agents), 1), -1).any(-1).argmax())
            numbers = (value[row] if agents else value).tolist()
            raise Broken(
                f"{what}{f' {agents[row]}' if agents else ''} is not finite: {numbers}"[:500]
            )


def _finite(numbers: np.ndarray) -> bool:
    """Whether all are; their squares tell it in one call, unless some are huge."""
    flat = numbers.reshape(-1)
    return math.isfinite(flat.dot(flat)) or bool(np.isfinite(flat).all())

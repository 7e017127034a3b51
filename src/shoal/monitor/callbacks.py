"""Callbacks of a run: its log, console, trackers, videos, and the user's own.

If a user's callback raises, the run is saved and ends with the callback's traceback.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..config.config import Config
from ..engine.episodes import Episodes
from ..envs.host.faults import Fault
from ..errors import ShoalError
from ..store.player import Player
from ..store.summary import Result

if TYPE_CHECKING:
    from .sinks import Log


@dataclass
class LiveRun:
    """A run in progress, as callbacks see it."""

    path: Path
    config: Config
    log: Log
    learners: Callable[[], dict[str, Any]]  # every team's current learner, on the host
    stop: Callable[[], None]  # ends the run early: saved, evaluated, ready to be resumed
    steps: int = 0  # environment steps so far
    seconds: float = 0.0  # seconds of training so far

    def player(self) -> Player:
        """A player with the current policies."""
        return Player(self.config, self.learners(), self.steps)


class Evaluated(Episodes):
    """The episodes of an evaluation, and its logged values."""

    values: dict[str, float]  # logged values, by metric
    best: bool  # whether it is the best evaluation so far

    @classmethod
    def of(cls, played: Episodes, values: dict[str, float], best: bool) -> Evaluated:
        """Add values to these episodes."""
        made = cls(*played)
        made.values = values
        made.best = best
        return made


class Callback:
    """Does nothing. Override the methods you need."""

    def on_iteration(self, run: LiveRun, values: dict[str, float]) -> None:
        """Called at each log point of training, with the logged values."""

    def on_evaluation(self, run: LiveRun, played: Evaluated) -> None:
        """Called after each evaluation, including those before the first step and after the last.

        `played.values` are the logged values."""

    def on_faults(self, run: LiveRun, faults: Sequence[Fault], during: str) -> None:
        """Called after an environment on the host broke, `during` training or evaluation."""

    def on_checkpoint(self, run: LiveRun, path: Path) -> None:
        """Called once a checkpoint is on the disk, in the folder `path`."""

    def on_end(self, run: LiveRun, result: Result) -> None:
        """Called after a run finished or was stopped, when all files are written."""

    def close(self) -> None:
        """Release resources; called last, however the run ended."""


class Failed(ShoalError):
    """A callback raised."""

    exit_code = 1
    reason = "a callback failed"


class Hooks:
    """All callbacks of a run.

    An error of a sink (the run's own log and console) ends the run at once. The first error of any
    other callback is kept; after it only sinks are called.
    """

    def __init__(self, builtin: Iterable[Callback], users: Iterable[Callback] = ()):
        if isinstance(users, Callback) or not all(isinstance(one, Callback) for one in users):
            raise ShoalError(
                "callbacks must be a list of objects whose class is a shoal.Callback:"
                " callbacks=[Mine()]"
            )
        self.sinks: list[Callback] = []
        self.callbacks = [*builtin, *users]
        self.failure: Failed | None = None

    def call(self, hook: str, run: LiveRun, *about: Any) -> None:
        """Call method `hook` of every callback, sinks first."""
        for sink in self.sinks:
            getattr(sink, hook)(run, *about)
        for callback in self.callbacks:
            if self.failure is None:
                try:
                    getattr(callback, hook)(run, *about)
                except Exception as error:
                    where = f"{type(callback).__name__}.{hook}, called at step {run.steps:,},"
                    what = f"{type(error).__name__}: {error}".removesuffix(": ")
                    self.failure = Failed(
                        f"{where} raised {what}; what was trained is saved in {run.path}"
                    )
                    self.failure.detail = traceback.format_exc()

    def close(self) -> None:
        """Close every callback but the sinks, which belong to whoever opened them."""
        for callback in self.callbacks:
            callback.close()

"""What a run calls as it goes on: its log, its console, trackers, films and users' own callbacks.

A user's callback that raises does not lose the run: the run is saved, and ends with the callback's
traceback.
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
    """A run under way, as callbacks see it."""

    path: Path
    config: Config
    log: Log
    learners: Callable[[], dict[str, Any]]  # every team's as they are now, on the host
    stop: Callable[[], None]  # ends the run early: saved, evaluated, and fit to be resumed
    steps: int = 0  # environment steps so far
    seconds: float = 0.0  # of training so far

    def player(self) -> Player:
        """The policies as they are now."""
        return Player(self.config, self.learners(), self.steps)


class Evaluated(Episodes):
    """The episodes of an evaluation, and what is logged of it."""

    values: dict[str, float]  # by metric name
    best: bool  # whether no evaluation before scored as high

    @classmethod
    def of(cls, played: Episodes, values: dict[str, float], best: bool) -> Evaluated:
        """These episodes with these values."""
        made = cls(*played)
        made.values = values
        made.best = best
        return made


class Callback:
    """Does nothing. Override the methods that you want to be called."""

    def on_iteration(self, run: LiveRun, values: dict[str, float]) -> None:
        """After each log point of training, with what is logged."""

    def on_evaluation(self, run: LiveRun, played: Evaluated) -> None:
        """After each evaluation, also those before the first step and after the last;
        `played.values` is what is logged."""

    def on_faults(self, run: LiveRun, faults: Sequence[Fault], during: str) -> None:
        """After an environment on the host broke, `during` training or evaluation."""

    def on_checkpoint(self, run: LiveRun, path: Path) -> None:
        """Once a checkpoint is whole on the disk, in the folder `path`."""

    def on_end(self, run: LiveRun, result: Result) -> None:
        """After a run that was finished or stopped: all is written."""

    def close(self) -> None:
        """Release what you hold: nothing follows, however the run ended."""


class Failed(ShoalError):
    """A callback raised."""

    exit_code = 1
    reason = "a callback failed"


class Hooks:
    """All callbacks of a run.

    An error of a sink (the run's own log and console) ends the run where it occurs. The first
    error of any other callback is kept; after it none but the sinks is called.
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
        """Call that method of every callback, the sinks first."""
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
        """Close every callback; the sinks belong to whoever opened them."""
        for callback in self.callbacks:
            callback.close()

"""Hooks for users' own code: what a run calls as it goes on.

A callback that raises does not lose the run: it is saved, and ends with the callback's own
traceback.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config.config import Config
from ..engine.episodes import Episodes
from ..errors import ShoalError
from ..store.player import Player
from ..store.summary import Result
from .sinks import Log


@dataclass
class Run:
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


class Callback:
    """Does nothing. A callback overrides the methods it wants to be called at."""

    def on_iteration(self, run: Run, values: dict[str, float]) -> None:
        """After each log point of training, with what was logged."""

    def on_evaluation(self, run: Run, played: Episodes) -> None:
        """After each evaluation, also the one before the first step and the one after the last."""

    def on_checkpoint(self, run: Run, path: Path) -> None:
        """A checkpoint is whole on the disk, in the folder `path`."""

    def on_end(self, run: Run, result: Result) -> None:
        """The run has ended as it should, or was stopped: all is written."""

    def close(self) -> None:
        """Nothing will follow, however the run ended: give back what you hold."""


class Failed(ShoalError):
    """A callback raised."""

    exit_code = 1
    reason = "a callback failed"


class Hooks:
    """All callbacks of a run. The first error is kept; after it no callback is called any more."""

    def __init__(self, own: Iterable[Callback], users: Iterable[Callback] = ()):
        if isinstance(users, Callback) or not all(isinstance(one, Callback) for one in users):
            raise ShoalError(
                "callbacks must be a list of objects whose class is a"
                " shoal.Callback: callbacks=[Mine()]"
            )
        self.callbacks = [*own, *users]
        self.failure: Failed | None = None

    def call(self, hook: str, run: Run, about: Any) -> None:
        """`hook` of every callback."""
        for callback in self.callbacks:
            if self.failure is None:
                try:
                    getattr(callback, hook)(run, about)
                except Exception as error:
                    where = f"{type(callback).__name__}.{hook}, called at step {run.steps:,},"
                    what = f"{type(error).__name__}: {error}".removesuffix(": ")
                    self.failure = Failed(
                        f"{where} raised {what}; what was trained is saved in {run.path}"
                    )
                    self.failure.detail = traceback.format_exc()

    def close(self) -> None:
        """Let go of everything."""
        for callback in self.callbacks:
            callback.close()

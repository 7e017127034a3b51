"""A request to stop a run, left as a file in its folder: also from another machine or user."""

from __future__ import annotations

from pathlib import Path

from ..store.folder import STOP
from .callbacks import Callback, LiveRun


def request(run: Path) -> None:
    """Ask a run to stop at its next log point: saved, evaluated, ready to be resumed."""
    (run / STOP).touch()


class StopFile(Callback):
    """Stops the run once the file is there, and removes it."""

    def on_iteration(self, run: LiveRun, values: dict[str, float]) -> None:
        try:
            (run.path / STOP).unlink()
        except OSError:
            return
        run.stop()

"""A request to stop a run, left as a file in its folder: also from another machine or user."""

from __future__ import annotations

import time
from pathlib import Path

from .callbacks import Callback, LiveRun

NAME = ".stop"


def request(run: Path) -> None:
    """Ask a run to stop at its next log point: saved, evaluated, ready to be resumed."""
    (run / NAME).touch()


class StopFile(Callback):
    """Stops the run once the file is there; one from before the run began does not count."""

    def __init__(self) -> None:
        self.since = time.time()

    def on_iteration(self, run: LiveRun, values: dict[str, float]) -> None:
        file = run.path / NAME
        try:
            asked = file.lstat().st_mtime >= self.since
            file.unlink()
        except OSError:
            return
        if asked:
            run.stop()

"""Mirror a run's folder to its URL after each checkpoint and at its end."""

from __future__ import annotations

from pathlib import Path

from ..errors import ShoalError
from ..store.remote import Elsewhere, Mirror
from ..store.summary import Result
from .callbacks import Callback, LiveRun
from .console import tell


class Mirroring(Callback):
    """Uploads a run's folder.

    An upload that fails is tried again at the next checkpoint; the last one must not fail."""

    def __init__(self) -> None:
        self.mirror: Mirror | None = None

    def on_checkpoint(self, run: LiveRun, path: Path) -> None:
        mirror = self._of(run)
        begun = mirror.begun
        try:
            mirror.push()
        except Elsewhere:
            raise
        except ShoalError as error:
            if not begun:
                raise
            tell(f"not mirrored at {run.steps:,} steps, but at the next checkpoint: {error}")

    def on_end(self, run: LiveRun, result: Result) -> None:
        self._of(run).push()

    def _of(self, run: LiveRun) -> Mirror:
        self.mirror = self.mirror or Mirror(run.path)
        return self.mirror

"""Progress of the runs of a sweep, and how each ended."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import ShoalError
from ..store import folder
from ..store.metrics_file import LENGTH, RATE, STEP, metrics_in, read_lines, returns_in

FINISHED = "finished"
STOPPED = "stopped"
FAILED = "failed"


class Outcome(NamedTuple):
    """How a job ended."""

    state: str  # FINISHED, FAILED, or STOPPED (by a signal, or before it began)
    message: str = ""  # the last line of a job that failed
    code: int = 0  # exit code of its process; 128 + the signal that stopped it


class Progress(NamedTuple):
    """Progress of a run, read from its folder."""

    steps: int = 0
    total: int = 0
    rate: float = 0.0  # steps per second
    scores: dict[str, float] = {}  # of the last evaluation, by team
    metrics: dict[str, float] = {}  # the environment's own, likewise
    evaluations: int = 0  # after the first step


class Follower:
    """Follows the metrics file of a run as it grows."""

    def __init__(self, path: Path):
        self.path = path
        self.read = 0
        self.total = 0
        self.latest: dict[str, Any] = {}
        self.teams: list[str] = []
        self.evaluations = 0

    def progress(self) -> Progress:
        """The progress so far."""
        with contextlib.suppress(OSError, ValueError, ShoalError):
            if self.latest.get(STEP, 0) >= self.total:  # total unknown, or the run is extended
                config = json.loads((self.path / folder.CONFIG).read_text())
                self.teams = list(config["teams"])
                self.total = config["settings"]["steps"]
            if (self.path / folder.METRICS).stat().st_size < self.read:  # cut back to a checkpoint
                self.read = 0
                self.evaluations = 0
            lines, self.read = read_lines(self.path, self.read)
            for line in lines:
                self.evaluations += LENGTH in line and line[STEP] > 0
                self.latest |= line
        last = self.latest
        scores = returns_in(last, self.teams, evaluation=True)
        metrics = metrics_in(last, self.teams, evaluation=True)
        rate = last.get(RATE) or 0.0
        return Progress(last.get(STEP, 0), self.total, rate, scores, metrics, self.evaluations)

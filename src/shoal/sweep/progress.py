"""How far the runs of a sweep are, and how each ended."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, NamedTuple

from ..store import folder
from ..store.metrics_file import own_of, tag

FINISHED = "finished"
STOPPED = "stopped"
FAILED = "failed"


class Outcome(NamedTuple):
    """How a job ended."""

    state: str  # FINISHED, FAILED, or STOPPED: by a signal, or before it began
    message: str = ""  # the last line of a job that failed
    code: int = 0  # exit code of its process; 128 + the signal that stopped it


class Progress(NamedTuple):
    """How far a run is, read from its folder."""

    steps: int = 0
    total: int = 0
    rate: float = 0.0  # steps per second
    scores: dict[str, float] = {}  # of its last evaluation, by team
    metrics: dict[str, float] = {}  # of the environment, likewise


class Follower:
    """Follows the metrics file of a run as it grows."""

    def __init__(self, path: Path):
        self.path = path
        self.read = 0
        self.total = 0
        self.latest: dict[str, Any] = {}
        self.names: dict[str, str] = {}  # of the metric that is a team's score

    def progress(self) -> Progress:
        """The progress up to now."""
        with contextlib.suppress(OSError, ValueError):
            if self.latest.get("env_step", 0) >= self.total:  # unknown, or it is trained further
                config = json.loads((self.path / folder.CONFIG).read_text())
                self.names = {team: f"evaluation/{tag(team)}/return" for team in config["teams"]}
                self.total = config["settings"]["steps"]
            with (self.path / folder.METRICS).open("rb") as file:
                if file.seek(0, os.SEEK_END) < self.read:  # cut back to a checkpoint
                    self.read = 0
                file.seek(self.read)
                whole, _, _ = file.read().rpartition(b"\n")
                self.read += len(whole) + bool(whole)
            for line in whole.splitlines():
                self.latest |= json.loads(line)
        last = self.latest
        scores = {team: last[name] for team, name in self.names.items() if name in last}
        metrics = own_of(last, self.names)
        rate = last.get("steps_per_second") or 0.0
        return Progress(last.get("env_step", 0), self.total, rate, scores, metrics)

"""The sinks of a run: JSON lines, TensorBoard events, one row per evaluation episode and agent."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import IO, Any

import numpy as np

from . import runs
from .envs.host import Fault
from .evaluate import Episodes
from .types import Spec

COLUMNS = ("env_step", "episode", "team", "agent", "return", "length")


class Log:
    """Open for the length of a run; every line is on disk when the call returns."""

    def __init__(self, run: Path):
        from tensorboardX import SummaryWriter

        self.run = run
        self.metrics: IO[str] = (run / runs.METRICS).open("x", buffering=1)
        self.episodes: IO[str] = (run / runs.EPISODES).open("x", newline="")
        self.rows = csv.writer(self.episodes)
        self.rows.writerow(COLUMNS)
        self.events = SummaryWriter(str(run / runs.TENSORBOARD))

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: Any) -> None:
        self.metrics.close()
        self.episodes.close()
        self.events.close()

    def point(self, step: int, values: dict[str, float]) -> None:
        """One log point."""
        plain = {name: value if np.isfinite(value) else None for name, value in values.items()}
        self.metrics.write(json.dumps({"env_step": step} | plain) + "\n")
        for name, value in values.items():
            self.events.add_scalar(name, value, step)

    def fault(self, fault: Fault) -> None:
        """How a game on the host broke."""
        with (self.run / runs.FAULTS).open("a") as file:
            file.write(json.dumps(fault._asdict()) + "\n")

    def evaluation(self, step: int, teams: dict[str, Spec], played: Episodes) -> None:
        """A row for every episode and agent."""
        for team, spec in teams.items():
            for episode, (returns, length) in enumerate(zip(played.returns[team], played.length, strict=True)):
                for agent, value in zip(spec.agents, returns, strict=True):
                    self.rows.writerow((step, episode, team, agent, f"{value:.6g}", length))
        self.episodes.flush()

"""The sinks of a run: JSON lines, TensorBoard events, one row per evaluation episode and agent."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import IO, Any

import numpy as np

from . import runs
from .curve import Point
from .envs.host import Fault
from .evaluate import Episodes
from .types import Spec

FILES = (runs.METRICS, runs.EPISODES, runs.FAULTS)
COLUMNS = ("env_step", "episode", "team", "agent", "return", "length")


class Log:
    """Open for the length of a run; every line is on disk when the call returns.

    A run that is resumed goes on where its checkpoint was: `marks` says how much of each file there was, `step` when.
    """

    def __init__(self, run: Path, marks: dict[str, int] | None = None, step: int | None = None):
        from tensorboardX import SummaryWriter

        self.run = run
        for name in FILES if marks is not None else ():
            if (run / name).exists():
                os.truncate(run / name, (marks or {}).get(name, 0))
        mode = "x" if marks is None else "a"
        self.metrics: IO[str] = (run / runs.METRICS).open(mode, buffering=1)
        self.episodes: IO[str] = (run / runs.EPISODES).open(mode, newline="")
        self.rows = csv.writer(self.episodes)
        if marks is None:
            self.rows.writerow(COLUMNS)
        self.events = SummaryWriter(str(run / runs.TENSORBOARD), purge_step=step)

    def marks(self) -> dict[str, int]:
        """How much there is of each file now."""
        self.episodes.flush()
        return {name: (self.run / name).stat().st_size for name in FILES if (self.run / name).exists()}

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


def read(run: Path, teams: dict[str, Spec]) -> tuple[list[Point], list[tuple[int, dict[str, float]]]]:
    """The evaluations and the training returns that a run has logged so far."""
    lines = [json.loads(line) for line in (run / runs.METRICS).read_text().splitlines()]
    training = [
        (line["env_step"], {team: line[f"{team}/return"] for team in teams if f"{team}/return" in line})
        for line in lines
    ]
    with (run / runs.EPISODES).open(newline="") as file:
        rows = list(csv.DictReader(file))
    points = []
    for line in lines:
        if "evaluation/length" in line:
            mine = [row for row in rows if int(row["env_step"]) == line["env_step"]]
            points.append(Point(line["env_step"], line["seconds"], _episodes(mine, teams)))
    return points, [(step, returns) for step, returns in training if returns]


def _episodes(rows: list[dict[str, str]], teams: dict[str, Spec]) -> Episodes:
    returns = {}
    for team, spec in teams.items():
        mine = [float(row["return"]) for row in rows if row["team"] == team]
        returns[team] = np.array(mine).reshape(-1, spec.n)
    first = next(iter(teams.values())).agents[0]
    return Episodes(returns, np.array([int(row["length"]) for row in rows if row["agent"] == first]))

"""The sinks of a run: JSON lines, TensorBoard events, one row per evaluation episode and agent."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from . import runs
from .curve import Point
from .envs.host import Fault
from .evaluate import Episodes
from .types import Spec

FILES = (runs.METRICS, runs.EPISODES, runs.FAULTS)
OURS = ("evaluation", "score")  # what names of metrics begin with that are not a team's
COLUMNS = ("env_step", "episode", "team", "agent", "return", "length")


def tag(name: str) -> str:
    """A team's or an agent's name inside a metric's: without a slash, and never one of our own first words."""
    plain = name.replace("%", "%25").replace("/", "%2F")
    return f"%{plain}" if plain in OURS else plain


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
        self.episodes: IO[str] = (run / runs.EPISODES).open(mode, newline="", encoding="utf-8")
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

    def video(self, name: str, frames: np.ndarray, fps: int, step: int) -> None:
        """`frames [T,H,W,3]` of bytes as an animation that TensorBoard shows among its images."""
        from PIL import Image
        from tensorboardX.proto.summary_pb2 import Summary  # type: ignore[attr-defined]

        first, *rest = (Image.fromarray(frame) for frame in np.asarray(frames, np.uint8))
        film = io.BytesIO()
        first.save(film, "GIF", save_all=True, append_images=rest, duration=round(1000 / fps), loop=0)
        height, width = np.shape(frames)[1:3]
        image = Summary.Image(height=height, width=width, colorspace=3, encoded_image_string=film.getvalue())
        self.events.file_writer.add_summary(Summary(value=[Summary.Value(tag=name, image=image)]), step)  # type: ignore

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


class History(NamedTuple):
    """What a run has logged so far."""

    points: list[Point]  # its evaluations
    training: list[tuple[int, dict[str, float]]]  # step and mean return by team
    before: dict[str, float]  # the scores of the first evaluation, to the bit


def read(run: Path, teams: dict[str, Spec]) -> History:
    """From its files."""
    lines = [json.loads(line) for line in (run / runs.METRICS).read_text().splitlines()]
    returns = {team: f"{tag(team)}/return" for team in teams}
    training = [
        (line["env_step"], {team: line[name] for team, name in returns.items() if name in line}) for line in lines
    ]
    with (run / runs.EPISODES).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    looks = [line for line in lines if "evaluation/length" in line]
    points = []
    for line in looks:
        mine = [row for row in rows if int(row["env_step"]) == line["env_step"]]
        points.append(Point(line["env_step"], line["seconds"], _episodes(mine, teams)))
    before = {team: line[f"evaluation/{name}"] for line in looks[:1] for team, name in returns.items()}
    return History(points, [(step, returns) for step, returns in training if returns], before)


def _episodes(rows: list[dict[str, str]], teams: dict[str, Spec]) -> Episodes:
    returns = {}
    for team, spec in teams.items():
        mine = [float(row["return"]) for row in rows if row["team"] == team]
        returns[team] = np.array(mine).reshape(-1, spec.n)
    first = next((team, spec.agents[0]) for team, spec in teams.items())
    return Episodes(returns, np.array([int(row["length"]) for row in rows if (row["team"], row["agent"]) == first]))

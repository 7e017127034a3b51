"""The sinks of a run: JSON lines, TensorBoard events, one row per evaluation episode and agent."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..engine.episodes import Episodes
from ..envs.host.faults import Fault
from ..store import folder
from ..store.metrics_file import COLUMNS, own
from ..types import Spec

FILES = (folder.METRICS, folder.EPISODES, folder.FAULTS)


class Log:
    """Open for the length of a run; every line is on disk when the call returns.

    A run that is resumed goes on where its checkpoint was: `marks` says how much of each file there
    was, `step` when.
    """

    def __init__(
        self,
        run: Path,
        marks: dict[str, int] | None = None,
        step: int | None = None,
        metrics: Sequence[str] = (),
    ):
        from tensorboardX import SummaryWriter

        self.run = run
        for name in FILES if marks is not None else ():
            if (run / name).exists():
                os.truncate(run / name, (marks or {}).get(name, 0))
        mode = "x" if marks is None else "a"
        self.metrics: IO[str] = (run / folder.METRICS).open(mode, buffering=1)
        self.episodes: IO[str] = (run / folder.EPISODES).open(mode, newline="", encoding="utf-8")
        self.rows = csv.writer(self.episodes)
        if marks is None:
            self.rows.writerow([*COLUMNS, *map(own, metrics)])
        self.columns = self._columns()
        self.events = SummaryWriter(str(run / folder.TENSORBOARD), purge_step=step)

    def _columns(self) -> list[str]:
        """Those of the file: a run that is resumed may have been begun without metrics."""
        self.episodes.flush()
        with (self.run / folder.EPISODES).open(newline="", encoding="utf-8") as file:
            return next(csv.reader(file), [])

    def marks(self) -> dict[str, int]:
        """How much there is of each file now."""
        self.episodes.flush()
        return {
            name: (self.run / name).stat().st_size for name in FILES if (self.run / name).exists()
        }

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
        first.save(
            film, "GIF", save_all=True, append_images=rest, duration=round(1000 / fps), loop=0
        )
        height, width = np.shape(frames)[1:3]
        image = Summary.Image(
            height=height, width=width, colorspace=3, encoded_image_string=film.getvalue()
        )
        shown = Summary(value=[Summary.Value(tag=name, image=image)])
        self.events.file_writer.add_summary(shown, step)  # type: ignore[union-attr]

    def fault(self, fault: Fault) -> None:
        """How a game on the host broke."""
        with (self.run / folder.FAULTS).open("a") as file:
            file.write(json.dumps(fault._asdict()) + "\n")

    def evaluation(self, step: int, teams: dict[str, Spec], played: Episodes) -> None:
        """A row for every episode and agent; each says the metrics of its episode."""
        said = {own(name): values for name, values in played.metrics.items()}
        extra = [said[column] for column in self.columns[len(COLUMNS) :]]
        for team, spec in teams.items():
            for episode, (returns, length) in enumerate(
                zip(played.returns[team], played.length, strict=True)
            ):
                more = (length, *(f"{values[episode]:.6g}" for values in extra))
                for agent, value in zip(spec.agents, returns, strict=True):
                    self.rows.writerow((step, episode, team, agent, f"{value:.6g}", *more))
        self.episodes.flush()

"""Log files of a run: JSON lines, TensorBoard events, one row per evaluation episode and agent."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from ..envs.host.faults import Fault
from ..store import folder
from ..store.metrics_file import COLUMNS, STEP, episode_name
from .callbacks import Callback, Evaluated, LiveRun

FILES = (folder.METRICS, folder.EPISODES, folder.FAULTS)


class Log(Callback):
    """Writes the log files; every line is on the disk when a call returns.

    When a run is resumed, the files are cut back to its checkpoint: to `marks` bytes each, and to
    `step`.
    """

    def __init__(
        self,
        run: Path,
        marks: Mapping[str, int] | None = None,
        step: int | None = None,
        metrics: Sequence[str] = (),
    ):
        from tensorboardX import SummaryWriter

        self.run = run
        for name in FILES:
            if marks is not None and (run / name).exists():
                os.truncate(run / name, marks.get(name, 0))
        mode = "x" if marks is None else "a"
        self.metrics: IO[str] = (run / folder.METRICS).open(mode, buffering=1)
        self.episodes: IO[str] = (run / folder.EPISODES).open(mode, newline="", encoding="utf-8")
        self.rows = csv.writer(self.episodes)
        if marks is None:
            self.rows.writerow([*COLUMNS, *map(episode_name, metrics)])
        self.columns = self._columns()
        self.events = SummaryWriter(str(run / folder.TENSORBOARD), purge_step=step)

    def _columns(self) -> list[str]:
        """The columns in the file: a resumed run may have begun without those of metrics."""
        self.episodes.flush()
        with (self.run / folder.EPISODES).open(newline="", encoding="utf-8") as file:
            return next(csv.reader(file), [])

    def marks(self) -> dict[str, int]:
        """The size of each file, in bytes."""
        self.episodes.flush()
        return {
            name: (self.run / name).stat().st_size for name in FILES if (self.run / name).exists()
        }

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        self.metrics.close()
        self.episodes.close()
        self.events.close()

    def point(self, step: int, values: dict[str, float]) -> None:
        """Write a log point."""
        plain = {name: value if np.isfinite(value) else None for name, value in values.items()}
        self.metrics.write(json.dumps({STEP: step} | plain) + "\n")
        for name, value in values.items():
            self.events.add_scalar(name, value, step)

    def video(self, name: str, frames: np.ndarray, fps: int, step: int) -> None:
        """Show `frames [T,H,W,3]` of bytes as an animation among TensorBoard's images."""
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

    def on_iteration(self, run: LiveRun, values: dict[str, float]) -> None:
        self.point(run.steps, values)

    def on_evaluation(self, run: LiveRun, played: Evaluated) -> None:
        self._rows(run, played)
        self.point(run.steps, played.values)

    def on_faults(self, run: LiveRun, faults: Sequence[Fault], during: str) -> None:
        with (self.run / folder.FAULTS).open("a") as file:
            file.writelines(json.dumps(fault._asdict()) + "\n" for fault in faults)

    def _rows(self, run: LiveRun, played: Evaluated) -> None:
        """Write a row for every episode and agent, with the metrics of the episode."""
        said = {episode_name(name): values for name, values in played.metrics.items()}
        extra = [said[column] for column in self.columns[len(COLUMNS) :]]
        for team, spec in run.config.sides.items():
            for episode, (returns, length) in enumerate(
                zip(played.returns[team], played.length, strict=True)
            ):
                more = (length, *(f"{values[episode]:.6g}" for values in extra))
                for agent, value in zip(spec.agents, returns, strict=True):
                    self.rows.writerow((run.steps, episode, team, agent, f"{value:.6g}", *more))
        self.episodes.flush()

"""Weights & Biases and MLflow as callbacks: the metric names of `metrics.jsonl`, against
environment steps.

The run folder's `tracking.json` keeps the tracker's run id, so that a resumed run continues it.
"""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .. import files, plugins
from ..config.config import Config
from ..errors import ShoalError
from ..store import folder
from ..store.metrics_file import STEP, score_name
from .callbacks import Callback, Evaluated, LiveRun

IDS = "tracking.json"
UNKNOWN = re.compile(r"[^\w/. -]")  # characters that MLflow allows in no metric name


class Tracker(Callback):
    """A tracking service: opens a tracked run at the first call and closes it at the end."""

    name: str  # under which `tracking.json` keeps the id of the tracked run

    def __init__(self) -> None:
        self.ended = False
        self.open = False

    def on_iteration(self, run: LiveRun, values: dict[str, float]) -> None:
        self._opened(run)
        self.log(run.steps, values)

    def on_evaluation(self, run: LiveRun, played: Evaluated) -> None:
        self._opened(run)
        self.log(run.steps, played.values)

    def on_end(self, run: LiveRun, result: Any) -> None:
        self._opened(run)
        self.log(run.steps, {score_name(team): score for team, score in result.scores.items()})
        self.finish(run)
        self.ended = True

    def close(self) -> None:
        if self.open:
            self.shut(self.ended)

    def _opened(self, run: LiveRun) -> None:
        """Open a new tracked run, or continue the earlier one."""
        if not self.open:
            ids = self._tracked_as(run.path / IDS)
            ids[self.name] = self.begin(run, ids.get(self.name, ""))
            files.write_json(run.path / IDS, ids)
            self.open = True

    @staticmethod
    def _tracked_as(path: Path) -> dict[str, str]:
        """Ids of the tracked runs, from before this run was resumed."""
        ids = files.read_json(path, "a run that was tracked") if path.exists() else {}
        sound = isinstance(ids, dict) and all(
            isinstance(one, str) for name, one in ids.items() if name != files.FORMAT
        )
        if not sound:
            raise ShoalError(f"{path} does not say how the run was tracked: remove it")
        return ids

    def begin(self, run: LiveRun, before: str) -> str:
        """Open a new tracked run, or the one with id `before`; return its id."""
        raise NotImplementedError

    def log(self, step: int, values: dict[str, float]) -> None:
        """Send a log point."""
        raise NotImplementedError

    def finish(self, run: LiveRun) -> None:
        """Send the curve and the policies."""
        raise NotImplementedError

    def shut(self, ended: bool) -> None:
        """Close the tracked run; `ended` if all went well."""
        raise NotImplementedError


class WandB(Tracker):
    """Weights & Biases; with `WANDB_MODE=offline` it writes only to `wandb/` in the run folder."""

    name = "wandb"

    def __init__(self) -> None:
        super().__init__()
        self.package = plugins.package(self.name)
        mode = os.environ.get("WANDB_MODE") or self.package.setup().settings.mode
        if mode == "online" and not self._known():
            raise ShoalError(
                "track=wandb needs a login: run `wandb login`, set WANDB_API_KEY, or set"
                " WANDB_MODE=offline to log into the run's folder alone"
            )

    def _known(self) -> bool:
        """Whether a user is logged in; earlier versions of wandb only know if there is a key."""
        try:
            return bool(self.package.login(prompt=False))
        except TypeError:
            return bool(self.package.api.api_key)

    def begin(self, run: LiveRun, before: str) -> str:
        self.theirs = self.package.init(
            project=run.config.settings.project,
            name=run.path.name,
            dir=str(run.path),
            config=run.config.to_json(),
            id=before or secrets.token_hex(4),
            resume="allow",
            settings=self.package.Settings(silent=True, console="off"),
        )
        self.theirs.define_metric(STEP)
        self.theirs.define_metric("*", step_metric=STEP)
        return self.theirs.id

    def log(self, step: int, values: dict[str, float]) -> None:
        self.theirs.log({STEP: step} | values)

    def finish(self, run: LiveRun) -> None:
        self.theirs.log(
            {STEP: run.steps, "curve": self.package.Image(str(run.path / folder.CURVE))}
        )
        for place in (folder.POLICY, folder.BEST):
            artifact = self.package.Artifact(f"{place}-{self.theirs.id}", type="model")
            for file in (run.path / place).iterdir():
                artifact.add_file(str(file))
            self.theirs.log_artifact(artifact)

    def shut(self, ended: bool) -> None:
        self.theirs.finish(exit_code=0 if ended else 1)


class MLflow(Tracker):
    """MLflow, at `MLFLOW_TRACKING_URI` or else at MLflow's default: a database in this folder."""

    name = "mlflow"

    def __init__(self) -> None:
        super().__init__()
        self.package = plugins.package(self.name)

    def begin(self, run: LiveRun, before: str) -> str:
        self.client = self.package.MlflowClient()
        if before:
            self.client.update_run(before, "RUNNING")
            self.id = before
            return before
        project = run.config.settings.project
        there = self.client.get_experiment_by_name(project)
        experiment = there.experiment_id if there else self.client.create_experiment(project)
        self.id = self.client.create_run(experiment, run_name=run.path.name).info.run_id
        for name, value in flat(run.config.to_json()):
            self.client.log_param(self.id, name, str(value)[:500])
        return self.id

    def log(self, step: int, values: dict[str, float]) -> None:
        now = round(time.time() * 1000)
        metric = self.package.entities.Metric
        accepted = {UNKNOWN.sub("_", name): value for name, value in values.items()}
        self.client.log_batch(
            self.id, [metric(name, value, now, step) for name, value in accepted.items()]
        )

    def finish(self, run: LiveRun) -> None:
        self.client.log_artifact(self.id, str(run.path / folder.CURVE))
        for place in (folder.POLICY, folder.BEST):
            self.client.log_artifacts(self.id, str(run.path / place), place)

    def shut(self, ended: bool) -> None:
        self.client.set_terminated(self.id, "FINISHED" if ended else "FAILED")


KINDS: dict[str, Callable[[], Tracker]] = {"wandb": WandB, "mlflow": MLflow}


def trackers(config: Config) -> list[Tracker]:
    """The trackers that a run's settings name: ours, or by entry point or import path."""
    words = [word.strip() for word in config.settings.track.split(",") if word.strip()]
    return [
        KINDS[word]() if word in KINDS else plugins.made("tracker", word, Tracker) for word in words
    ]


def flat(plain: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested dictionaries, each with its path: `settings.steps`."""
    if not isinstance(plain, dict):
        yield prefix, plain
        return
    for name, value in plain.items():
        yield from flat(value, f"{prefix}.{name}" if prefix else str(name))

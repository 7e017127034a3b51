"""Resume a run: read all that it goes on from, before anything is changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from ..config.config import Config
from ..config.trust import Trust
from ..errors import ShoalError
from ..files import errors_name
from ..options import entry
from ..store import checkpoint, folder, metrics_file, policy_store
from ..store.metrics_file import History
from ..store.policy_store import BestEvaluation
from ..store.records import CheckpointAbout
from ..types import TrainState


class Resumed(NamedTuple):
    """What a run goes on from."""

    state: TrainState
    about: CheckpointAbout
    history: History  # up to the checkpoint
    best: BestEvaluation | None  # up to the checkpoint
    best_learners: dict[str, Any]
    damaged: list[str]  # what is wrong with newer checkpoints

    def unevaluated(self, steps: int) -> bool:
        """Whether a run that had ended, and is extended to `steps`, still lacks its evaluation
        here.

        Its last evaluation came after its last checkpoint."""
        done = self.about["steps"]
        ended = 0 < _total(self.about) <= done < steps
        return ended and self.history.points[-1].step < done

    def sentences(self, path: Path, config: Config, total: int) -> list[str]:
        """Messages on where the run goes on and what changes; `total` are its total steps so
        far."""
        now = config.settings.steps
        done = self.about["steps"]
        found = [f"using an older checkpoint: {sentence}" for sentence in self.damaged]
        found.append(f"resuming {path} at {done:,} of {now:,} steps")
        if now != total:
            found.append(rescaled(done, total, now))
        if config.hosted:
            found.append(
                "its games begin new episodes, as an environment on the host cannot be saved"
            )
        return found


def config_of(path: Path, trust: Trust, steps: int) -> Config:
    """The config to go on with, extended to `steps` if given; refuses a run without steps left."""
    config = folder.config_of(path, trust)
    if steps and steps != config.settings.steps:
        refuse_fewer(path, steps)
        return replace(config, settings=replace(config.settings, steps=steps))
    if folder.finished(path):
        raise ShoalError(
            f"{path} is finished: there is nothing to resume, but shoal resume {path}"
            f" --steps <more than it has> trains it further"
        )
    return config


def read(path: Path, config: Config, like: TrainState, totals: list[int]) -> Resumed:
    """Read a run's newest intact checkpoint and its history up to there, with arrays as in
    `like`."""
    state, about, damaged = checkpoint.newest(path, like)
    _refuse_another(path, config, about, totals)
    best, learners = _best(path, config, state, about)
    return Resumed(state, about, _history(path, config, about), best, learners, damaged)


def _best(
    path: Path, config: Config, state: TrainState, about: CheckpointAbout
) -> tuple[BestEvaluation | None, dict[str, Any]]:
    """The best evaluation up to the checkpoint, and the acting part of its learners."""
    if not about["best"]:
        return None, {}
    place = checkpoint.place(path, about["steps"])
    with errors_name(place):
        best = BestEvaluation(
            entry(about["best"], "team", str),
            entry(about["best"], "steps", int),
            entry(about["best"], "score", float),
        )
    return best, checkpoint.read_best(place, policy_store.acting(config, state.learners))


def _history(path: Path, config: Config, about: CheckpointAbout) -> History:
    """The run's logs up to the checkpoint."""
    try:
        history = metrics_file.read(path, config.sides, config.metrics, about["logs"])
    except (OSError, ValueError, KeyError) as error:
        raise ShoalError(_no_log(path, f" ({error})")) from None
    if not history.points:
        raise ShoalError(_no_log(path, ": it has no evaluation"))
    return history


def _no_log(path: Path, why: str) -> str:
    return (
        f"the log of {path} cannot be read{why}: put {folder.METRICS} and {folder.EPISODES} back,"
        f" or begin another run with shoal train {path / folder.CONFIG}"
    )


def _refuse_another(path: Path, config: Config, about: CheckpointAbout, totals: list[int]) -> None:
    """Refuse a config that differs from the checkpoint's in what decides learning; steps may
    grow."""
    now = config.to_json()
    now["settings"]["steps"] = _total(about) if _total(about) in totals else totals[0]
    other = folder.difference(about.get("config"), now)
    if other:
        raise ShoalError(
            f"{path / folder.CONFIG} says {other} as in its checkpoint: put it back, or begin"
            f" another run with shoal train {path / folder.CONFIG}"
        )


def _total(about: CheckpointAbout) -> int:
    """The total steps of a run, as planned when a checkpoint was written."""
    return (about.get("config") or {}).get("settings", {}).get("steps", 0)


def unbegun(path: Path) -> bool:
    """Whether a run ended before its first checkpoint, so that nothing was trained."""
    if any(checkpoint.places(path)):
        return False
    if (path / folder.POLICY).exists() or folder.finished(path):
        return False
    if not (path / folder.METRICS).exists():
        return True
    # at the first log point, the first checkpoint may still be being written
    lines = metrics_file.read_lines(path).values[:-1]
    return all(line[metrics_file.STEP] == 0 for line in lines)


def refuse_fewer(path: Path, steps: int) -> None:
    """Refuse to extend a run to no more steps than it has."""
    done = checkpoint.done(path)
    if steps <= done:
        raise ShoalError(
            f"{path} has been trained for {done:,} steps already: ask for more than that,"
            f" not {steps:,}"
        )


def rescaled(done: int, before: int, total: int) -> str:
    """Tell what another total of steps does to schedules."""
    return (
        f"trained for {total:,} steps in all instead of {before:,}: what changes over the whole"
        f" run, such as an annealed learning rate, now stands at {min(done / total, 1):.0%} of it,"
        f" not at {min(done / before, 1):.0%}; what counts steps, such as exploration, goes on"
    )

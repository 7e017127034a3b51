"""What a run left behind, and why it ended: `summary.json`, which every run that ended has."""

from __future__ import annotations

import contextlib
import signal
from dataclasses import dataclass, field
from pathlib import Path

from ..errors import FULL, ShoalError
from ..files import write_json
from .folder import FINISHED, SUMMARY
from .policy_store import BestEvaluation
from .records import Failure


@dataclass(frozen=True)
class Result:
    """What a run left behind. Scores are mean returns of one agent, by team."""

    path: Path
    scores: dict[str, float]
    before: dict[str, float]
    random: dict[str, float]  # empty if it was stopped before that was played
    steps: int
    seconds: float  # of training alone
    # the number of the signal that ended it early; a callback ends it as SIGTERM does
    stopped: int = 0
    best: BestEvaluation | None = (
        None  # the evaluation whose policy is kept in the run's `best` folder
    )
    reason: str = FINISHED  # why it ended
    from_run: str = ""  # whose weights it started from
    metrics: dict[str, float] = field(default_factory=dict)  # the environment's own, at the end
    random_metrics: dict[str, float] = field(default_factory=dict)  # the same of random play

    def write(self) -> None:
        """Write the summary into the run's folder."""
        facts = vars(self) | {"path": str(self.path), "best": self.best and self.best._asdict()}
        for name in ("metrics", "random_metrics"):
            if not facts[name]:  # as in a run of an environment that has none
                del facts[name]
        rate = self.steps / max(self.seconds, 1e-9)
        write_json(self.path / SUMMARY, facts | {"steps_per_second": rate})


def stopped_by(number: int, from_outside: bool) -> str:
    """The reason of a run that a signal or a callback stopped, or that was finished."""
    if not number:
        return FINISHED
    return f"stopped by {signal.Signals(number).name}" if from_outside else "stopped by a callback"


def write_failure(path: Path, error: BaseException, steps: int, seconds: float) -> None:
    """Write why a run broke off, over any earlier summary, if the disk allows."""
    reason, message = why(error)
    facts: Failure = {
        "reason": reason,
        "message": message,
        "stopped": 0,
        "path": str(path),
        "steps": steps,
        "seconds": seconds,
    }
    with contextlib.suppress(OSError):
        write_json(path / SUMMARY, facts)


def why(error: BaseException) -> tuple[str, str]:
    """The reason in a few words, and the message."""
    if isinstance(error, ShoalError):
        return error.reason, str(error)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", "it was told to end at once"
    if isinstance(error, OSError) and error.errno in FULL:
        return "out of disk", str(error)
    return "crashed", f"{type(error).__name__}: {error}"

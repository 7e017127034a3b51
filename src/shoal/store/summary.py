"""The result of a run and why it ended: `summary.json`, written at every ending."""

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
    """The result of a run. Scores are mean returns per agent, by team."""

    path: Path
    scores: dict[str, float]
    before: dict[str, float]
    random: dict[str, float]  # empty if the run was stopped before random play
    steps: int
    seconds: float  # of training only
    # number of the signal that ended it early; a callback counts as SIGTERM
    stopped: int = 0
    best: BestEvaluation | None = None  # its policy is in the run's `best` folder
    reason: str = FINISHED  # why the run ended
    from_run: str = ""  # run whose weights it started from
    metrics: dict[str, float] = field(default_factory=dict)  # the environment's own, at the end
    random_metrics: dict[str, float] = field(default_factory=dict)  # likewise, of random play
    final: dict[str, float] = field(default_factory=dict)  # scores of the `final_episodes`
    final_metrics: dict[str, float] = field(default_factory=dict)

    def write(self) -> None:
        """Write the summary into the run's folder."""
        facts = vars(self) | {"path": str(self.path), "best": self.best and self.best._asdict()}
        for name in ("metrics", "random_metrics", "final", "final_metrics"):
            if not facts[name]:  # such as those of an environment without metrics
                del facts[name]
        rate = self.steps / max(self.seconds, 1e-9)
        write_json(self.path / SUMMARY, facts | {"steps_per_second": rate})


def stopped_by(number: int, from_outside: bool) -> str:
    """The reason of a run that was stopped by a signal or a callback, or finished."""
    if not number:
        return FINISHED
    return f"stopped by {signal.Signals(number).name}" if from_outside else "stopped by a callback"


def write_failure(path: Path, error: BaseException, steps: int, seconds: float) -> None:
    """Write why a run failed, over any earlier summary, if the disk allows it."""
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
    """The reason in a few words, and the error message."""
    if isinstance(error, ShoalError):
        return error.reason, str(error)
    if isinstance(error, KeyboardInterrupt):
        return "interrupted", "it was told to end at once"
    if isinstance(error, OSError) and error.errno in FULL:
        return "out of disk", str(error)
    return "crashed", f"{type(error).__name__}: {error}"

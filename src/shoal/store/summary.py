"""What a run left behind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .policy_store import Best


@dataclass(frozen=True)
class Result:
    """What a run left behind. Scores are mean returns of one agent, by team."""

    path: Path
    scores: dict[str, float]
    before: dict[str, float]
    random: dict[str, float]  # empty if it was stopped before that was played
    steps: int
    seconds: float  # of training alone
    stopped: int = 0  # the number of the signal that ended it early; a callback ends it as SIGTERM does
    best: Best | None = None  # the evaluation whose policy is kept in the run's `best` folder

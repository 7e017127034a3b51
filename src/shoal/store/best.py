"""The best policy of a run: the one whose evaluation had the highest score of a team, or metric."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from ..algorithms.opponents.random import Fixed
from ..config.config import Config
from ..engine.episodes import Episodes
from . import folder, policy_store
from .policy_store import BestEvaluation


def judge(config: Config) -> str:
    """The team or metric that decides which policy is best: the one named, else the first learning
    team."""
    learning = [
        team for team, algorithm in config.algorithms.items() if not isinstance(algorithm, Fixed)
    ]
    return config.settings.best or next(iter([*learning, *config.algorithms]))


class BestPolicy:
    """Keeps the best policy so far, in memory for checkpoints and in the run's folder."""

    def __init__(self, run: Path, config: Config):
        self.run = run
        self.config = config
        self.judge = judge(config)
        self.evaluation: BestEvaluation | None = None
        self.learners: dict[str, Any] = {}

    def consider(self, steps: int, played: Episodes, learners: dict[str, Any]) -> bool:
        """Keep these learners if they scored higher than any before; return whether they did."""
        score = (played.score() | played.means())[self.judge]
        if not math.isfinite(score) or (self.evaluation and score <= self.evaluation.score):
            return False
        self.evaluation = BestEvaluation(self.judge, steps, score)
        self.learners = policy_store.acting(self.config, learners)
        self._save()
        return True

    def restore(self, evaluation: BestEvaluation, learners: dict[str, Any]) -> None:
        """Restore the best policy of a checkpoint; the folder may hold a later one, or none."""
        self.evaluation = evaluation
        self.learners = learners
        if policy_store.best_of(self.run) != evaluation:
            self._save()

    def _save(self) -> None:
        assert self.evaluation
        place = self.run / folder.BEST
        policy_store.save(place, self.config, self.learners, self.evaluation.steps, self.evaluation)

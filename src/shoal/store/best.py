"""Which policy was best: the one with which a team scored highest in an evaluation, or a metric of
the environment was highest."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from ..algorithms.opponents.random import Fixed
from ..config.config import Config
from ..engine.episodes import Episodes
from . import folder, policy_store
from .policy_store import Best


def judge(config: Config) -> str:
    """The team or metric that decides: the one that was named, else the first team that learns."""
    learning = [
        team for team, algorithm in config.algorithms.items() if not isinstance(algorithm, Fixed)
    ]
    return config.settings.best or next(iter([*learning, *config.algorithms]))


class BestPolicy:
    """Keeps the best policy of a run, in memory for checkpoints and in its folder for everybody."""

    def __init__(self, run: Path, config: Config):
        self.run = run
        self.config = config
        self.judge = judge(config)
        self.best: Best | None = None
        self.learners: dict[str, Any] = {}

    def consider(self, steps: int, played: Episodes, learners: dict[str, Any]) -> bool:
        """Take these learners if they scored higher than any before."""
        score = (played.score() | played.means())[self.judge]
        if not math.isfinite(score) or (self.best and score <= self.best.score):
            return False
        self.best, self.learners = (
            Best(self.judge, steps, score),
            policy_store.acting(self.config, learners),
        )
        self._save()
        return True

    def restore(self, best: Best, learners: dict[str, Any]) -> None:
        """As it was at the checkpoint that a run goes on from; the folder may be of later, or of
        the moment it died."""
        self.best = best
        self.learners = learners
        if policy_store.best_of(self.run) != best:
            self._save()

    def _save(self) -> None:
        assert self.best
        policy_store.save(
            self.run / folder.BEST, self.config, self.learners, self.best.steps, self.best
        )

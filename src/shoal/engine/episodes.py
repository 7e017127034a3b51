"""Episodes that were played to their end."""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np

from ..config.settings import Settings
from ..errors import ShoalError

DEFAULT = Settings()


class Episodes(NamedTuple):
    """One row per episode."""

    returns: dict[str, np.ndarray]  # team -> [episodes,N] undiscounted, each agent's own
    length: np.ndarray  # [episodes]
    metrics: dict[str, np.ndarray] = {}  # by metric: [episodes] what the environment says

    def score(self) -> dict[str, float]:
        """Mean return of one agent, by team."""
        return {team: float(rows.mean()) for team, rows in self.returns.items()}

    def means(self) -> dict[str, float]:
        """Mean of each metric of the environment over the episodes."""
        return {name: float(values.mean()) for name, values in self.metrics.items()}


class Endless(ShoalError):
    """An episode that is longer than an evaluation waits for."""

    exit_code = 1
    reason = "an episode that does not end"

    def __init__(self, env: str, game: int, longest: int, limit: str):
        super().__init__(
            f"an evaluation was given up: game {game} of {env} has not ended its episode after"
            f" {longest:,} steps;"
            f" {limit}, or let evaluations wait for longer with --longest"
        )


LIMIT = "cut its episodes with --env.limit <steps>"  # of a game on the host


def aloud(sentence: str) -> None:
    """To whoever reads the terminal."""
    print(sentence, file=sys.stderr, flush=True)

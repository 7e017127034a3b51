"""Records of finished episodes."""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np

from ..config.settings import Settings
from ..errors import ShoalError

DEFAULT = Settings()


class Episodes(NamedTuple):
    """Finished episodes, one row each."""

    returns: dict[str, np.ndarray]  # team -> [episodes,N] undiscounted, each agent's own
    length: np.ndarray  # [episodes]
    metrics: dict[str, np.ndarray] = {}  # by metric: [episodes] the environment's own

    def score(self) -> dict[str, float]:
        """Mean return of one agent, by team."""
        return {team: float(rows.mean()) for team, rows in self.returns.items()}

    def means(self) -> dict[str, float]:
        """Mean of each metric of the environment over the episodes."""
        return {name: float(values.mean()) for name, values in self.metrics.items()}


def outcomes(played: Episodes) -> dict[str, dict[str, float]]:
    """By team, the fractions of episodes won (higher return than the other team), drawn and lost.

    None are reckoned if there are not two teams, or if the environment says itself who won.
    """
    knows_who_won = any(f"{team}/won" in played.metrics for team in played.returns)
    if len(played.returns) != 2 or knows_who_won:
        return {}
    one, other = played.returns
    margin = played.returns[one].mean(1) - played.returns[other].mean(1)
    fractions = [float(np.mean(outcome)) for outcome in (margin > 0, margin == 0, margin < 0)]
    words = ("win", "draw", "loss")
    return {
        one: dict(zip(words, fractions, strict=True)),
        other: dict(zip(words, fractions[::-1], strict=True)),
    }


class EndlessEpisode(ShoalError):
    """Raised when an episode lasts longer than an evaluation waits."""

    exit_code = 1
    reason = "an episode that does not end"

    def __init__(self, env: str, game: int, longest: int, limit: str):
        super().__init__(
            f"an evaluation was given up: game {game} of {env} has not ended its episode after"
            f" {longest:,} steps; {limit}, or let evaluations wait for longer with --longest"
        )


LIMIT = "cut its episodes with --env.limit <steps>"  # advice for a game on the host


def warn(sentence: str) -> None:
    """Print a sentence to stderr."""
    print(sentence, file=sys.stderr, flush=True)

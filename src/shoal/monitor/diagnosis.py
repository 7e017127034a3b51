"""Find out why training diverged: check the game's numbers before blaming the learning rate."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import algorithms
from ..config.config import Config
from ..engine.episodes import Episodes
from ..engine.evaluate import Evaluator
from ..types import Clock, View

HUGE = 1e6  # larger numbers are too large for nets and their squared errors
# games and instants of random play that are examined
GAMES = 4
INSTANTS = 200
OTHERWISE = "try a smaller lr or max_grad_norm"


def cause(config: Config, views: dict[str, View], before: Episodes) -> str:
    """The first cause found, and its cure.

    `views` are the newest; `before` are episodes played before training."""
    return next(iter([*_strange(config, views), *_rich(before)]), OTHERWISE)


def _strange(config: Config, views: dict[str, View]) -> Iterator[str]:
    """Numbers in views that are not finite, or huge.

    A compiled game is played at random for it, as a diverged policy distorts its observations."""
    fields = {"observation": "obs", "state": "state", "reward": "reward"}
    for seen in [views] if config.hosted else _random_play(config):
        for team, view in seen.items():
            for what, name in fields.items():
                numbers = np.abs(np.asarray(getattr(view, name), np.float64))
                largest = float(numbers.max(initial=0.0))  # NaN if any is
                if not largest <= HUGE:
                    yield _sentence(team, what, largest)


def _sentence(team: str, what: str, size: float) -> str:
    whose = f"{'an' if what[0] == 'o' else 'a'} {what} of team {team}"
    if not np.isfinite(size):
        return f"{whose} was {size:g}: let the game give nothing but numbers"
    return f"{whose} was as large as {size:.3g}: let the game scale it down"


def _random_play(config: Config) -> Iterator[dict[str, View]]:
    """Every team's views at every instant of random play in a compiled game."""
    guessers = {team: algorithms.random_policy(spec) for team, spec in config.game.teams.items()}
    nothing: dict[str, Any] = {team: () for team in guessers}
    clock = Clock(jnp.float32(0), jnp.float32(0))
    instants = Evaluator(config.game, guessers, GAMES, False).instants(
        nothing, config.settings.seed, clock
    )
    return (jax.device_get(tally.play.views) for tally, _ in islice(instants, INSTANTS))


def _rich(before: Episodes) -> Iterator[str]:
    """Rewards that were huge before training, judged by returns of whole episodes."""
    for team, rows in before.returns.items():
        each = float(np.abs(rows / np.maximum(before.length, 1)[:, None]).max(initial=0.0))
        if not each <= HUGE:
            yield _sentence(team, "reward", each)

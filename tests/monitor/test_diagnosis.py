"""Training that diverges names what was seen first: what a game gives that no net bears, else the
learning rate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from jax import Array

import shoal
from shoal import envs
from shoal.config.config import Config
from shoal.engine.episodes import Episodes
from shoal.envs.native.matrix import MatrixGame
from shoal.monitor import diagnosis
from shoal.monitor.metrics import Diverged
from shoal.types import Box, Spec

SIZES: dict[str, Any] = {
    "games": 4,
    "window": 5,
    "steps": 200,
    "eval_episodes": 2,
    "evaluations": 0,
    "hidden": 4,
}


@dataclass(frozen=True)
class Harsh(MatrixGame):
    """Earns `worth` and shows `seen` from the third round on."""

    repetitions: int = 5
    """rounds per episode"""
    worth: str = "1"
    """of a round; as text, which may be nan"""
    seen: str = "1"
    """by everybody"""

    name = "test/harsh"

    def payoff(self) -> np.ndarray:
        return np.full((2, 2), float(self.worth))

    def advance(self, key: Array, world: Array, actions: dict[str, Array]) -> Array:
        return world + 1

    def reward(self, world: Array) -> dict[str, Array]:
        return {"agent": jnp.where(world >= 3, float(self.worth), 1.0)}

    def observe(self, world: Array) -> dict[str, Array]:
        return {"agent": jnp.where(world >= 3, float(self.seen), 1.0)[:, None]}


CASES = {
    "huge rewards": (
        {"worth": "1e30"},
        "a reward of team agent was as large as 1e\\+30: let the game scale it down",
    ),
    "rewards that are none": (
        {"worth": "nan"},
        "a reward of team agent was nan: let the game give",
    ),
    "observations that are none": (
        {"seen": "nan"},
        "an observation of team agent was nan: let the game give",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_what_a_game_gives_is_named_before_the_learning_rate(case: str, tmp_path: Path) -> None:
    options, told = CASES[case]
    own: dict[str, Any] = {"minibatches": 1, "devices": 1, "out": str(tmp_path), "quiet": True}
    with pytest.raises(Diverged, match=told):
        shoal.train("ppo", Harsh.name, env=options, **SIZES, **own)


def test_a_learner_is_blamed_where_the_game_is_well() -> None:
    config = Config.build("test/harsh", {"agent": ("ppo", {"minibatches": 1})}, {}, {"games": 4})
    well = Episodes({"agent": np.ones((2, 2))}, np.array([5, 5]))
    assert diagnosis.cause(config, {}, well) == "try a smaller lr or max_grad_norm"
    rich = Episodes({"agent": np.full((2, 2), 5e9)}, np.array([5, 5]))
    assert diagnosis.cause(config, {}, rich).startswith(
        "a reward of team agent was as large as 1e+09"
    )


@dataclass(frozen=True)
class Held(Harsh):
    """Each agent has bounds of its own, and agent 1 a dimension without width."""

    worth: str = "1e30"
    name = "test/held"

    @cached_property
    def teams(self) -> dict[str, Spec]:
        box = Box(((-1.0, -1.0), (0.0, 2.0)), ((1.0, 1.0), (1.0, 2.0)))
        return {"agent": replace(super().teams["agent"], action=box)}


def test_a_held_dimension_is_not_blamed_for_huge_rewards() -> None:
    """It does no harm, and bounds may be each agent's own."""
    config = Config.build("test/held", {"agent": ("ppo", {"minibatches": 1})}, {}, {"games": 4})
    well = Episodes({"agent": np.ones((2, 2))}, np.array([5, 5]))
    told = diagnosis.cause(config, {}, well)
    assert told.startswith("a reward of team agent was as large as 1e+30")


@pytest.fixture(autouse=True)
def harsh(monkeypatch: pytest.MonkeyPatch) -> None:
    for game in (Harsh, Held):
        monkeypatch.setitem(envs.GAMES, game.name, game)

"""Training that diverges names what was seen first: what a game gives that no net bears, else the
learning rate."""

from __future__ import annotations

from dataclasses import dataclass, replace
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
from shoal.types import Box

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
    worth: float = 1.0
    """of a round"""
    seen: float = 1.0
    """by everybody"""

    name = "test/harsh"

    def payoff(self) -> np.ndarray:
        return np.full((2, 2), self.worth)

    def advance(self, key: Array, world: Array, actions: dict[str, Array]) -> Array:
        return world + 1

    def reward(self, world: Array) -> dict[str, Array]:
        return {"agent": jnp.where(world >= 3, self.worth, 1.0)}

    def observe(self, world: Array) -> dict[str, Array]:
        return {"agent": jnp.where(world >= 3, self.seen, 1.0)[:, None]}


CASES = {
    "huge rewards": (
        {"worth": 1e30},
        "a reward of team agent was as large as 1e\\+30: let the game scale it down",
    ),
    "rewards that are none": (
        {"worth": float("nan")},
        "a reward of team agent was nan: let the game give",
    ),
    "observations that are none": (
        {"seen": float("nan")},
        "an observation of team agent was nan: let the game give",
    ),
}


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


def test_an_action_without_width_is_named() -> None:
    spec = replace(
        envs.make("test/continuous_identity").teams["agent"], action=Box((0.0, 2.0), (1.0, 2.0))
    )
    (told,) = diagnosis._narrow({"agent": spec})
    assert told.startswith("dimension 1 of team agent's actions has no width (it is always 2)")


@pytest.fixture(autouse=True)
def harsh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(envs.GAMES, Harsh.name, Harsh)

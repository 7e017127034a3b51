"""Actions of several parts, in every algorithm that plays them."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from helpers import LEARNERS, TEAM, bits, build, clock, run, traced

from shoal.algorithms import find, random_policy
from shoal.engine.loop import Loop
from shoal.envs import make
from shoal.errors import ShoalError
from shoal.types import MultiDiscrete

SEVERAL = [name for name in LEARNERS if MultiDiscrete in find(name).spaces]
WIDE = make("test/factored_identity", n=2, length=5)  # 5 ** 6 combinations


@pytest.mark.parametrize("name", SEVERAL)
def test_it_fits_every_algorithm_that_declares_it(name):
    """Nothing is compiled; with curiosity, whose inverse model guesses the parts."""
    assert traced(name, "mlp", "shared", WIDE, curiosity="icm")


@pytest.mark.parametrize("name", ["dqn", "qmix", "coma", "maddpg", "sac"])
def test_others_refuse_it(name):
    with pytest.raises(ShoalError, match="this game's are MultiDiscrete: choose another algorithm"):
        build(name, WIDE)
    assert {"ppo", "mappo", "hatrpo", "sable"} <= set(SEVERAL)


def trained(env: str, iterations: int, **options: Any) -> Any:
    game = make(env, n=2, length=5, **options)
    settings = {"hidden": 16, "layers": 1, "lr": 1e-2, "minibatches": 2, "epochs": 4}
    algorithm = build("ppo", game, **settings, anneal=False)
    loop = Loop(game, {TEAM: algorithm}, games=32, window=10, steps=10**6)
    return run(loop, iterations)


@pytest.mark.slow
def test_one_part_is_a_plain_choice():
    """To the bit, whatever was learnt."""
    whole, _ = trained("test/identity", 2, actions=4)
    parts, _ = trained("test/factored_identity", 2, actions=4, parts=1)
    assert bits(whole.learners) == bits(parts.learners)


@pytest.mark.slow
def test_every_part_is_learnt():
    """From a fifth of the answers right to most, though no two actions are ever alike."""
    _, metrics = trained("test/factored_identity", 60, actions=5, parts=6)
    share = metrics.returns[TEAM] / metrics.episodes / 5
    assert share[0] < 0.25 and share[-1] > 0.6


def test_random_players_draw_each_part_of_what_is_legal():
    player = random_policy(WIDE.teams[TEAM])
    view = WIDE.reset(jax.random.key(0), 200)[1][TEAM]
    view = view._replace(legal=view.legal.at[..., 7].set(False))  # value 2 of part 1
    action = np.asarray(player.act((), jax.random.key(1), view, (), clock(), False).action)
    values = [set(action[..., part].ravel().tolist()) for part in range(6)]
    assert values == [{0, 1, 2, 3, 4} - ({2} if part == 1 else set()) for part in range(6)]

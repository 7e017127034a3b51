"""What algorithms say of their actions and of the return they expect."""

import jax.numpy as jnp
import numpy as np
import pytest
from helpers import opened

from shoal import algorithms, envs
from shoal.algorithms.base import PROBABILITIES
from shoal.engine.thoughts import think
from shoal.types import Clock

GAME = envs.make("mpe/simple_spread")
CLOCK = Clock(jnp.zeros((), jnp.int32), jnp.zeros(()))


def thoughts(name, acting=False, **options):
    """Of two games at their opening."""
    (team,) = GAME.teams
    kind = algorithms.find(name)
    one = kind(kind.Config(hidden=8, layers=1, **options), GAME.teams[team])
    learner = one.init(np.random.default_rng(0))
    learner = one.acting(learner) if acting else learner
    _, views = opened(GAME, 2)
    legal = views[team].legal.at[:, :, 0].set(False)
    views = {team: views[team]._replace(legal=legal)}
    carries = {team: one.carry(learner, 2)}
    return one, think({team: one}, {team: learner}, CLOCK, views, carries)[team]


FEW = ("mappo", "coma", "qmix", "maddpg", "masac", "facmac")  # of each family, and of critics
LEARNERS = [name for name in algorithms.ALGORITHMS if name not in algorithms.UNTRAINED]


@pytest.mark.parametrize(
    "name",
    [name if name in FEW else pytest.param(name, marks=pytest.mark.slow) for name in LEARNERS],
)
def test_every_algorithm_says_preferences_and_values(name):
    one, (preferences, values) = thoughts(name)
    assert preferences.shape == (2, 3, 5) and values.shape == (2, 3)
    assert np.isneginf(preferences[..., 0]).all() and np.isfinite(values).all()
    legal = np.asarray(preferences[..., 1:])
    if one.prefers == PROBABILITIES:
        np.testing.assert_allclose(legal.sum(-1), 1.0, atol=1e-4)
    else:
        np.testing.assert_allclose(values, legal.max(-1), rtol=1e-5)


@pytest.mark.slow
def test_without_its_critic_or_its_memory_a_policy_says_no_value():
    assert thoughts("mappo", acting=True)[1].values is None
    assert thoughts("mappo", torso="gru")[1].values is None
    assert thoughts("maddpg", acting=True)[1].preferences is not None
    assert thoughts("qmix", acting=True)[1].values is not None
    assert thoughts("ippo", share_torso=True, torso="gru")[1].values is not None

"""Ensembles: several nets as one, and what their utilities say together."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.algorithms.utilities import Utility
from shoal.nets import torsos
from shoal.nets.ensembles import Ensemble, elected, member, optimistic
from shoal.nets.layers import Dense
from shoal.nets.mlp import Style

OWNER = (0, 0)


def net(seed: int, torso: str) -> Utility:
    rng = np.random.default_rng(seed)
    inner = torsos.find(torso)(rng, OWNER, 3, 4, 2, Style("relu", False))
    return Utility(inner, Dense(rng, OWNER, 4, 3, gain=1.0))


@pytest.mark.parametrize("torso", ["mlp", "gru"])
def test_members_answer_and_remember_as_they_would_alone(torso):
    nets = [net(seed, torso) for seed in range(3)]
    together = Ensemble(nets)
    rng = np.random.default_rng(9)
    obs = jnp.asarray(rng.normal(size=(5, 4, 2, 3)), jnp.float32)
    first = jnp.asarray(rng.random((5, 4)) < 0.3)
    legal = jnp.ones((5, 4, 2, 3), bool)
    start = together.carry(4, 2)
    values, end = jax.jit(together.__call__)((obs,), start, first, legal)
    assert values.shape == (5, 3, 4, 2, 3)
    for k, one in enumerate(nets):
        alone, carry = one((obs,), one.carry(4, 2), first, legal)
        np.testing.assert_allclose(values[:, k], alone, atol=1e-6)
        np.testing.assert_allclose(end[:, k], carry, atol=1e-6)
    assert np.abs(values[:, 0] - values[:, 1]).max() > 1e-3


@pytest.mark.parametrize("kind", [np.float32, bool])
def test_each_agent_gets_what_its_member_says(kind):
    """The same at every instant, or one for each."""
    rng = np.random.default_rng(0)
    values = (rng.normal(size=(5, 3, 4, 2, 6)) > 0).astype(kind)
    for shape in ((4, 2), (5, 4, 2)):
        which = rng.integers(0, 3, shape)
        found = np.asarray(member(jnp.asarray(which), jnp.asarray(values)))
        assert found.dtype == kind
        for t, b, n in np.ndindex(5, 4, 2):
            own = np.broadcast_to(which, (5, 4, 2))[t, b, n]
            np.testing.assert_array_equal(found[t, b, n], values[t, own, b, n])


def test_an_optimist_adds_the_deviation():
    values = jnp.asarray([[1.0, 5.0, 2.0], [3.0, 5.0, 0.0]])
    assert optimistic(values, 0.0).tolist() == [2, 5, 1]
    assert optimistic(values, 0.5).tolist() == [2.5, 5, 1.5]


def test_most_votes_win_and_the_mean_decides_between_equals():
    legal = jnp.asarray([True, True, True, False])
    votes = jnp.asarray([[9.0, 0, 0, 99], [0, 1, 0, 99], [0, 1, 0, 99]])  # 1 for the first, 2 for 1
    assert elected(votes, legal) == 1 and jnp.argmax(votes.mean(0)[:3]) == 0
    tied = jnp.asarray([[3.0, 0, 2, 99], [0, 1, 2.5, 99]])  # one vote each for actions 0 and 2
    assert elected(tied, legal) == 2

"""Whole numbers read one-hot."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from helpers import call

from shoal.nets.mlp import Mlp, Style
from shoal.nets.one_hot import OneHot, columns, one_hot


def test_every_number_has_columns_of_its_own():
    read = call(lambda x: one_hot(x, 1), np.array([[-1.0, 0.0], [1.0, 5.0], [-3.0, 0.4]]))
    low, zero, high = np.eye(columns(1))
    np.testing.assert_array_equal(read, [[*low, *zero], [*high, *high], [*low, *zero]])


def test_a_torso_reads_the_named_parts_one_hot_and_the_others_as_they_are():
    rng = np.random.default_rng(0)
    inner = Mlp(rng, (0, 0), 2 * columns(3) + 4, 8, 2, Style("tanh", False))
    whole = jnp.asarray(rng.integers(-3, 4, (5, 2, 2, 2)), jnp.float32)
    other = jnp.asarray(rng.normal(size=(5, 2, 2, 4)), jnp.float32)
    carry = inner.carry(2, 2)
    first = jnp.zeros((5, 2), bool)
    ours, _ = OneHot(inner, (1,), 3)((other, whole), carry, first)
    theirs, _ = inner((other, one_hot(whole, 3)), carry, first)
    np.testing.assert_array_equal(ours, theirs)

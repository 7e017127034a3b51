"""Optimisers beside their definitions."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from helpers import TINY, build, mortal

from shoal.learning.optim import OPTIMISERS, descend


def test_rmsprop_is_pytorchs():
    """v ← 0.99 v + 0.01 g², θ ← θ − η g / (√v + 1e-5), from v = 0, as PyMARL sets it."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=3).astype(np.float32)
    params = {"net": jnp.asarray(theta)}
    tx = OPTIMISERS["rmsprop"](10.0)
    opt = {"net": tx.init(params["net"])}
    mean_square = np.zeros(3)
    for _ in range(20):
        grad = rng.normal(size=3).astype(np.float32) * [1.0, 1e-3, 1e-6]
        params, opt, _ = descend(
            tx, params, opt, {"net": jnp.asarray(grad, jnp.float32)}, {"net": jnp.float32(0.01)}
        )
        mean_square = 0.99 * mean_square + 0.01 * grad**2
        theta = theta - 0.01 * grad / (np.sqrt(mean_square) + 1e-5)
    np.testing.assert_allclose(params["net"], theta, atol=1e-5)


def test_adams_epsilon_decides_how_far_small_gradients_move_a_weight():
    """The first step of Adam is η g / (|g| + ε)."""
    grad = jnp.float32([1.0, 1e-3, 1e-6])
    for epsilon in (1e-5, 1e-8):
        algorithm = build("dqn", mortal(), adam_epsilon=epsilon, **TINY)
        step, _ = algorithm.tx.update(grad, algorithm.tx.init(grad))
        np.testing.assert_allclose(step, grad / (grad + epsilon), rtol=1e-4)


def test_the_option_chooses():
    learner = build("dqn", mortal(), optimiser="rmsprop", **TINY).init(np.random.default_rng(0))
    assert hasattr(learner.opt["agents"][1], "nu") and not hasattr(learner.opt["agents"][1], "mu")
    plain = build("dqn", mortal(), **TINY).init(np.random.default_rng(0))
    assert hasattr(plain.opt["agents"][1], "mu")

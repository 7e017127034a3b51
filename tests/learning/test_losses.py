"""Losses of single errors, by hand."""

from __future__ import annotations

import jax
import numpy as np

from shoal.learning.losses import huber, squared


def test_trap_14_huber_is_two_sided():
    """Half a square up to delta, on both sides; then a line whose slope is delta."""
    errors = np.array([-5.0, -2.0, -1.0, 0.0, 1.0, 2.0, 5.0], np.float32)
    np.testing.assert_allclose(huber(errors, 2.0), [8.0, 2.0, 0.5, 0.0, 0.5, 2.0, 8.0])
    slopes = jax.vmap(jax.grad(lambda error: huber(error, 2.0)))(errors)
    np.testing.assert_allclose(slopes, [-2.0, -2.0, -1.0, 0.0, 1.0, 2.0, 2.0])
    np.testing.assert_array_equal(huber(errors, 100.0), squared(errors))

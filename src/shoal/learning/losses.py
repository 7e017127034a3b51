"""Losses of single errors."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array


def squared(error: Array) -> Array:
    """Half the square of an error."""
    return 0.5 * error**2


def huber(error: Array, delta: float) -> Array:
    """The same up to `delta` on either side, and linear beyond (Huber 1964)."""
    size = jnp.abs(error)
    return jnp.where(size <= delta, squared(error), delta * (size - 0.5 * delta))

"""Data parallelism: each device plays its own share of the games; learners are replicated and updated by sums.

The loop runs inside `shard_map` over one mesh axis, on one device too, so these sums are always defined there.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

AXIS = "devices"


def total(x):
    """Sum over the devices; of every leaf, for a pytree."""
    return jax.lax.psum(x, AXIS)


def masked_mean(x: Array, weight: Array) -> Array:
    """Each device's share of the weighted mean over all devices: the shares add up to it, and so do their gradients.

    An empty mask gives 0.
    """
    count = total(jax.lax.stop_gradient(jnp.broadcast_to(weight, x.shape).sum()))
    return (x * weight).sum() / jnp.maximum(count, 1.0)


def moments(x: Array, weight: Array) -> tuple[Array, Array]:
    """Weighted mean and variance over all devices."""
    weight = jnp.broadcast_to(weight, x.shape)
    sums = total(jnp.stack([(x * weight).sum(), (x * x * weight).sum(), weight.sum()]))
    mean, square = sums[:2] / jnp.maximum(sums[2], 1.0)
    return mean, jnp.maximum(square - mean * mean, 0.0)

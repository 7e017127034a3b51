"""Data parallelism: each device plays its own share of the games; learners are replicated and
updated by sums.

The loop runs inside `shard_map` over one mesh axis, on one device too, so these sums are always
defined there.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

AXIS = "devices"


def total(tree):
    """Every leaf summed over the devices, in one exchange."""
    if jax.lax.axis_size(AXIS) == 1:
        return tree
    flat, unravel = ravel_pytree(tree)
    return unravel(jax.lax.psum(flat, AXIS))


def largest(x: Array | float) -> Array:
    """The largest of all devices' numbers."""
    return jax.lax.pmax(x, AXIS)


def shares(weight: Array) -> Array:
    """Weights that add up to 1 over all devices; all 0 for an empty mask.

    `(x * shares).sum()` is a device's part of the weighted mean: the parts add up to it, and so do
    their gradients.
    """
    return weight / jnp.maximum(total(weight.sum()), 1.0)


def moments(x: Array, share: Array) -> tuple[Array, Array]:
    """Mean and variance under such weights, over all devices.

    In two passes: squares of what is large beside its own deviation would leave nothing of that
    deviation in float32. The second also mends the mean by what rounding took from the first.
    """
    rough = total((x * share).sum())
    away = x - rough
    drift, square = total(((away * share).sum(), (away * away * share).sum()))
    return rough + drift, jnp.maximum(square - drift * drift, 0.0)

"""Sums over devices: each device plays its own part of the games, learners are the same on all of
them and are updated by sums.

The loop runs inside `shard_map` over one mesh axis, on one device too, so these sums are always
defined there.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from .trees import Tree

AXIS = "devices"


def total(tree: Tree) -> Tree:
    """Every leaf summed over the devices, in one exchange."""
    if jax.lax.axis_size(AXIS) == 1:
        return tree
    flat, unravel = ravel_pytree(tree)
    return unravel(jax.lax.psum(flat, AXIS))


def largest(x: Array | float) -> Array:
    """The largest of all devices' numbers."""
    return jax.lax.pmax(x, AXIS)


def mean_weights(weight: Array) -> Array:
    """Weights that add up to 1 over all devices; all 0 for an empty mask.

    `(x * mean_weights(weight)).sum()` is a device's part of the weighted mean: the parts add up to
    it, and so do their gradients.
    """
    return weight / jnp.maximum(total(weight.sum()), 1.0)


def moments(x: Array, weight: Array) -> tuple[Array, Array]:
    """Mean and variance over all devices, under weights that add up to 1.

    In two passes: in float32 the squares of numbers far from 0 lose their variance. The second pass
    also corrects the mean for what the first lost to rounding.
    """
    rough = total((x * weight).sum())
    away = x - rough
    drift, square = total(((away * weight).sum(), (away * away * weight).sum()))
    return rough + drift, jnp.maximum(square - drift * drift, 0.0)

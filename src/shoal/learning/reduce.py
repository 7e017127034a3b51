"""Sums over devices.

Each device plays its own share of the games. Learners are equal on all devices and are updated by
sums over them. The loop runs inside `shard_map` over one mesh axis, also on a single device, so
these sums are always defined there.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array
from jax.flatten_util import ravel_pytree

from .trees import Tree

AXIS = "devices"


def total(tree: Tree) -> Tree:
    """Sum every leaf over the devices, in one exchange."""
    if jax.lax.axis_size(AXIS) == 1:
        return tree
    flat, unravel = ravel_pytree(tree)
    return unravel(jax.lax.psum(flat, AXIS))


def largest(x: Array | float) -> Array:
    """Maximum over the devices."""
    return jax.lax.pmax(x, AXIS)


def mean_weights(weight: Array) -> Array:
    """Scale weights to add up to 1 over all devices; all 0 for an empty mask.

    `(x * mean_weights(weight)).sum()` is a device's part of the weighted mean: the parts add up to
    the mean, and their gradients to its gradient.
    """
    return share_out(weight, total(weight.sum()))


def share_out(weight: Array, whole: Array) -> Array:
    """Weights as shares of their sum; all 0 for an empty mask."""
    return weight / jnp.maximum(whole, 1.0)


def moments(x: Array, weight: Array, axis: tuple[int, ...] | None = None) -> tuple[Array, Array]:
    """Mean and variance over these axes and all devices, under weights that add up to 1.

    Computed in two passes: in float32, squares of numbers far from 0 lose the variance. The second
    pass also corrects the rounding error of the mean.
    """
    rough = total((x * weight).sum(axis))
    away = x - rough
    drift, square = total(((away * weight).sum(axis), (away * away * weight).sum(axis)))
    return rough + drift, jnp.maximum(square - drift * drift, 0.0)

"""Natural gradient steps within a trust region (TRPO; Schulman et al. 2015)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array
from jax.scipy.sparse.linalg import cg

from .trees import Tree


def natural_step(
    slope: Tree, product: Callable[[Tree], Tree], bound: Array | float, rounds: int
) -> Tree:
    """The step x along F⁻¹·slope with ½ xᵀFx = bound; `product(v)` is Fv.

    F⁻¹·slope is found by so many rounds of conjugate gradient.
    """
    direction, _ = cg(product, slope, maxiter=rounds)
    square: Any = optax.tree.vdot(direction, product(direction))
    scale = jnp.sqrt(2 * bound / jnp.maximum(square, jnp.finfo(jnp.float32).tiny))
    return jax.tree.map(lambda x: scale * x, direction)


def line_search(
    measure: Callable[[Tree], tuple[Array, Array]],
    params: Tree,
    step: Tree,
    promise: Array | float,
    bound: Array | float,
    tries: int,
    backtrack: float,
    accept: float,
) -> tuple[Tree, Array]:
    """Shrink a step until it keeps its promise; also return the fraction taken, 0 if none was.

    `measure(params)` gives the gain over `params` as they are and the KL from them. A fraction f of
    the step is taken if the KL is within the bound and the gain positive and at least
    `accept` · f · `promise`.
    """
    tried = partial(_tried, measure, params, step, promise, bound, backtrack, accept)
    start = (jnp.int32(0), jnp.float32(1.0), jnp.float32(0.0))
    _, _, taken = jax.lax.while_loop(
        lambda state: (state[0] < tries) & (state[2] == 0), tried, start
    )
    moved = _moved(params, step, taken)
    return jax.tree.map(lambda new, old: jnp.where(taken > 0, new, old), moved, params), taken


def _tried(
    measure: Callable[[Any], tuple[Array, Array]],
    params: Any,
    step: Any,
    promise: Array | float,
    bound: Array | float,
    backtrack: float,
    accept: float,
    state: tuple[Array, Array, Array],
) -> tuple[Array, Array, Array]:
    """One try of a line search: the number of tries, the next fraction, the fraction taken."""
    count, fraction, _ = state
    gain, kl = measure(_moved(params, step, fraction))
    good = (kl <= bound) & (gain > 0) & (gain >= accept * fraction * promise)
    return count + 1, backtrack * fraction, jnp.where(good, fraction, 0.0)


def _moved(params: Tree, step: Tree, fraction: Array) -> Tree:
    return jax.tree.map(lambda old, change: old + fraction * change, params, step)

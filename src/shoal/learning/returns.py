"""Returns and advantages on the view stream: pure functions, arrays in, arrays out.

Every one of them reads `discount` (0 where the task ended) for bootstrapping and `valid` (0 on the
dummy transition over a reset) for succession, so that truncation, termination and several episodes
in a row need no special case. Only who is cut short alone, while the game goes on, is settled with
beforehand.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ..types import View, Window


def advantages(
    reward: Array, discount: Array, values: Array, valid: Array, gamma: float, lam: float
) -> Array:
    """λ-weighted sums of TD errors (GAE, Schulman et al. 2016, eq. 16), `[T,…]` from `values
    [T+1,…]`.

    Adding `values[:-1]` gives TD(λ) targets; λ = 1 sums rewards to the window's end and bootstraps
    there.
    """
    delta = valid * (reward + gamma * discount * values[1:] - values[:-1])
    decay = valid * (gamma * lam) * discount
    _, adv = jax.lax.scan(
        _accumulate, jnp.zeros_like(delta[0]), (delta, decay), reverse=True, unroll=8
    )
    return adv


def _accumulate(later: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
    delta, decay = step
    now = delta + decay * later
    return now, now


def n_step(
    reward: Array, discount: Array, values: Array, valid: Array, gamma: float, n: int
) -> Array:
    """Targets `[T,…]` of n rewards and the value after them; fewer where the episode or the window
    ends before."""
    target = values
    for _ in range(n):
        ahead = jnp.where(valid, reward + gamma * discount * target[1:], values[:-1])
        target = jnp.concatenate([ahead, values[-1:]])
    return target[:-1]


def pool(reward: Array, discount: Array, how: str) -> tuple[Array, Array]:
    """Rewards and discounts `[…,N]` as one learner sees them.

    A pooled reward goes with the team's discount: a dead agent still shares in what its team earns.
    """
    if how == "own":
        return reward, discount
    pooled = reward.mean(-1, keepdims=True) if how == "mean" else reward.sum(-1, keepdims=True)
    return jnp.broadcast_to(pooled, reward.shape), jnp.broadcast_to(
        discount.max(-1, keepdims=True), discount.shape
    )


def counted(view: View, how: str) -> Array:
    """`[…,N]` whose value counts at an instant: that of the living, and of who was cut short alone
    with it.

    With a pooled reward the team plays on without one who leaves; it is cut short when nobody of it
    is left.
    """
    if how == "own":
        return view.alive | view.cut
    return view.alive | (view.cut & ~view.alive.any(-1, keepdims=True))


def left(view: View, how: str) -> Array:
    """`[…,N or 1]` whether an agent, or with a pooled reward its team, was cut short alone with an
    instant."""
    return view.cut if how == "own" else (counted(view, how) & ~view.alive).any(-1, keepdims=True)


def settle(reward: Array, discount: Array, values: Array, left: Array) -> tuple[Array, Array]:
    """Rewards and discounts `[T,…]` where one who left with an instant is paid what was expected
    `[T+1,…]` there.

    That stands for all that would have followed; nothing else does, whatever the returns sum up.
    """
    return jnp.where(left[:-1], values[:-1], reward), jnp.where(left[:-1], 0.0, discount)


def learning_weight(window: Window, how: str) -> Array:
    """`[T,B,N]` 1 where a transition bears on what an agent earns: with a pooled reward also after
    its own death."""
    if how == "own":
        return window.weight
    return jnp.broadcast_to(window.valid, window.view.alive[:-1].shape).astype(jnp.float32)

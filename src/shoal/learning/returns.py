"""Returns and advantages on the view stream: pure functions, arrays in, arrays out.

All of them read `discount` (0 where the task ended) for bootstrapping and `valid` (0 on the dummy
transition over a reset) for succession. So truncation, termination and several episodes in a row
need no special case. Only an agent that is truncated alone, while the game goes on, needs `settle`
first.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ..types import View, Window


def advantages(
    reward: Array, discount: Array, values: Array, valid: Array, gamma: float, lam: float
) -> Array:
    """GAE: λ-weighted sums of TD errors (Schulman et al. 2016, eq. 16).

    Returns `[T,…]` from `values [T+1,…]`. Adding `values[:-1]` gives TD(λ) targets. With λ = 1,
    rewards are summed to the window's end, where the value is bootstrapped.
    """
    delta = valid * (reward + gamma * discount * values[1:] - values[:-1])
    decay = valid * (gamma * lam) * discount
    _, adv = jax.lax.scan(
        _accumulate, jnp.zeros_like(delta[0]), (delta, decay), reverse=True, unroll=8
    )
    return adv


def _accumulate(later: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
    delta, decay = step
    advantage = delta + decay * later
    return advantage, advantage


def n_step(
    reward: Array, discount: Array, values: Array, valid: Array, gamma: float, n: int
) -> Array:
    """n-step targets `[T,…]`: n rewards plus the bootstrapped value after them.

    There are fewer rewards where the episode or the window ends earlier.
    """
    target = values
    for _ in range(n):
        longer = jnp.where(valid, reward + gamma * discount * target[1:], values[:-1])
        target = jnp.concatenate([longer, values[-1:]])
    return target[:-1]


def pool(reward: Array, discount: Array, pooling: str) -> tuple[Array, Array]:
    """Rewards and discounts `[…,N]` to learn from: each agent's own, or the team's mean or sum.

    A pooled reward goes with the team's discount: a dead agent still shares in what its team earns.
    """
    if pooling == "own":
        return reward, discount
    pooled = reward.mean(-1, keepdims=True) if pooling == "mean" else reward.sum(-1, keepdims=True)
    return jnp.broadcast_to(pooled, reward.shape), jnp.broadcast_to(
        discount.max(-1, keepdims=True), discount.shape
    )


def counted(view: View, pooling: str) -> Array:
    """`[…,N]` bool: agents whose value counts at an instant.

    These are the living, and those truncated alone at this instant. With a pooled reward the team
    plays on when one of its agents leaves; it is truncated only when the last one leaves.
    """
    if pooling == "own":
        return view.alive | view.cut
    return view.alive | (view.cut & ~view.alive.any(-1, keepdims=True))


def left(view: View, pooling: str) -> Array:
    """`[…,N or 1]` bool: an agent, or with a pooled reward its team, is truncated here."""
    return (
        view.cut
        if pooling == "own"
        else (counted(view, pooling) & ~view.alive).any(-1, keepdims=True)
    )


def settle(reward: Array, discount: Array, values: Array, left: Array) -> tuple[Array, Array]:
    """Pay an agent that left at an instant the value predicted for it there.

    Returns rewards and discounts `[T,…]`, from values `[T+1,…]`. The value stands for all the agent
    would have earned afterwards, so the discount there becomes 0.
    """
    return jnp.where(left[:-1], values[:-1], reward), jnp.where(left[:-1], 0.0, discount)


def learning_weight(window: Window, pooling: str) -> Array:
    """`[T,B,N]` 1 where an agent learns from a transition, else 0.

    It learns while it lives; with a pooled reward also after its death.
    """
    if pooling == "own":
        return window.weight
    return jnp.broadcast_to(window.valid, window.view.alive[:-1].shape).astype(jnp.float32)

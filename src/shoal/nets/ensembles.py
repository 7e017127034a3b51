"""Ensembles: several nets of one shape as one, and what their utilities say together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .heads import best_action


class Ensemble(eqx.Module):
    """Nets with a torso, side by side; what they return has their axis `K` behind the first."""

    members: Any  # one net whose every leaf is [K,…]

    def __init__(self, nets: Sequence[Any]):
        self.members = jax.tree.map(lambda *leaves: jnp.stack(leaves), *nets)

    def __call__(self, *inputs: Any) -> Any:
        """Call each member: parts, its carry `[B,K,…]`, and whatever else it reads."""
        parts, carry, *rest = inputs
        count = len(jax.tree.leaves(self.members)[0])
        # a copy for each member: products then have the members' axis in common, as exports need
        each = tuple(jnp.broadcast_to(part, (count, *part.shape)) for part in parts)

        def one(net: Any, parts: Any, carry: Any) -> Any:
            return net(parts, carry, *rest)

        return jax.vmap(one, in_axes=(0, 0, 1), out_axes=1)(self.members, each, carry)

    def carry(self, games: int, rows: int) -> Any:
        return jax.vmap(lambda net: net.torso.carry(games, rows), out_axes=1)(self.members)


def member(which: Array, values: Array) -> Array:
    """Values `[T,B,N,…]` of the member `which [B,N]` or `[T,B,N]`, of all members' `[T,K,B,N,…]`.

    Computed as a masked sum, whose gradient needs no scatter.
    """
    own = jnp.moveaxis(which[..., None] == jnp.arange(values.shape[1]), -1, -3)
    own = own.reshape(*own.shape, *(1,) * (values.ndim - 4))
    if values.dtype == bool:
        return (values & own).any(1)
    return (values * own).sum(1)


def optimistic(values: Array, weight: float) -> Array:
    """Mean of utilities `[K,…]` plus `weight` times their deviation: an upper confidence bound."""
    return values.mean(0) + weight * values.std(0)


def elected(values: Array, legal: Array) -> Array:
    """The legal action `[…]` that most of the utilities `[K,…,A]` think best.

    Among actions with equally many votes, the one with the highest mean utility.
    """
    votes = jax.nn.one_hot(best_action(values, legal), values.shape[-1]).sum(0)
    return best_action(values.mean(0), votes == votes.max(-1, keepdims=True))

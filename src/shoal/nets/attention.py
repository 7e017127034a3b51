"""Attention among the agents of a team (Vaswani et al. 2017)."""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .distributions import ILLEGAL
from .layers import Dense, Rng

SHARED = (0,)  # all agents share the parameters


class Cache(NamedTuple):
    """Keys and values of the agents whose turn has been."""

    keys: Array  # [B,N,heads,D]
    values: Array  # [B,N,heads,D]
    known: Array  # [B,N] bool


class Heads(eqx.Module):
    """Queries, keys and values of several heads."""

    query: Dense
    key: Dense
    value: Dense
    count: int = eqx.field(static=True)

    def __init__(self, rng: Rng, hidden: int, count: int):
        self.query, self.key, self.value = (
            Dense(rng, SHARED, hidden, hidden, gain=1.0, bias=False) for _ in range(3)
        )
        self.count = count

    @property
    def size(self) -> int:
        """Width of one head."""
        return self.query.weight.shape[-1] // self.count

    def __call__(self, queries: Array, keys: Array) -> tuple[Array, Array, Array]:
        """Of each head, `[…,N,heads,D]`; keys are scaled by 1/√D."""
        q, k, v = (
            dense(x).reshape(*x.shape[:-1], self.count, self.size)
            for dense, x in ((self.query, queries), (self.key, keys), (self.value, keys))
        )
        return q, k * self.size**-0.5, v


class Attention(eqx.Module):
    """Softmax attention of each agent to the others, within an instant; nothing is carried on.

    `causal`: agents see those before them and themselves. Time grows with the square of the agents.
    """

    heads: Heads
    out: Dense
    causal: bool = eqx.field(static=True)

    def __init__(self, rng: Rng, hidden: int, heads: int, causal: bool):
        self.heads = Heads(rng, hidden, heads)
        self.out = Dense(rng, SHARED, hidden, hidden, gain=1.0)
        self.causal = causal

    def carry(self, games: int) -> Array:
        return jnp.zeros((games, 0))

    def __call__(
        self, queries: Array, keys: Array, carry: Array, first: Array, alive: Array
    ) -> tuple[Array, Array]:
        """Attend for all agents at once, `[T,B,N,F]`."""
        q, k, v = self.heads(queries, keys)
        agents = q.shape[-3]
        visible = jnp.tri(agents, dtype=bool) if self.causal else True
        return self._joined(attended(q, k, v, alive[..., None, :] & visible)), carry

    def open(self, carry: Array, first: Array, agents: int) -> Cache:
        """The state before the first turn of an instant."""
        games = first.shape[0]
        nothing = jnp.zeros((games, agents, self.heads.count, self.heads.size))
        return Cache(nothing, nothing, jnp.zeros((games, agents), bool))

    def turn(
        self, queries: Array, keys: Array, state: Cache, agent: Array, alive: Array
    ) -> tuple[Array, Cache]:
        """Attend for one agent, `[B,1,F]`; the state has those before it."""
        q, k, v = self.heads(queries, keys)
        here = jnp.arange(state.known.shape[1]) == agent
        row = here[:, None, None]
        state = Cache(
            jnp.where(row, k, state.keys),
            jnp.where(row, v, state.values),
            jnp.where(here, alive, state.known),
        )
        seen = attended(q, state.keys, state.values, state.known[:, None])
        return self._joined(seen), state

    def close(self, state: Cache) -> Array:
        """The carry after the last turn of an instant."""
        return self.carry(state.known.shape[0])

    def _joined(self, seen: Array) -> Array:
        return self.out(seen.reshape(*seen.shape[:-2], -1))


def attended(q: Array, k: Array, v: Array, visible: Array) -> Array:
    """Softmax attention `[…,N,heads,D]`, where `visible […,N,M]`; 0 where nothing is visible."""
    visible = visible[..., None, :, :]
    scores = jnp.where(visible, jnp.einsum("...nhd,...mhd->...hnm", q, k), ILLEGAL)
    weights = jnp.where(visible, jax.nn.softmax(scores), 0.0)
    return jnp.einsum("...hnm,...mhd->...nhd", weights, v)

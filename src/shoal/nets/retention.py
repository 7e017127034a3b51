"""Retention over agents and time (Sun et al. 2023; over agents, Mahjoub et al. 2025).

A key writes its value into a matrix, a query reads from it, and from instant to instant the matrix
decays. Agents take turns when they act (`turn`, the recurrent form). Learning reads all agents and
instants at once (`written`, `states`, `read`, the chunkwise form: a chunk is one instant).
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .attention import SHARED, Heads
from .layers import Dense, Rng, standardised


class Retention(eqx.Module):
    """Gated retention, each head with a rate of its own; `first` empties the memory.

    `causal`: within an instant agents see those before them and themselves, else all. Of earlier
    instants they see everything.
    """

    heads: Heads
    gate: Dense
    out: Dense
    decay: tuple[float, ...] = eqx.field(static=True)  # of each head, per instant
    causal: bool = eqx.field(static=True)

    def __init__(self, rng: Rng, hidden: int, decay: tuple[float, ...], causal: bool):
        self.heads = Heads(rng, hidden, len(decay))
        self.gate = Dense(rng, SHARED, hidden, hidden, gain=1.0)
        self.out = Dense(rng, SHARED, hidden, hidden, gain=1.0)
        self.decay = decay
        self.causal = causal

    @property
    def remembers(self) -> bool:
        """Whether anything is kept from instant to instant."""
        return any(self.decay)

    def carry(self, games: int) -> Array:
        return self._empty(games) if self.remembers else jnp.zeros((games, 0))

    def __call__(
        self, queries: Array, keys: Array, carry: Array, first: Array, alive: Array
    ) -> tuple[Array, Array]:
        """Retain for all agents and instants at once, `[T,B,N,F]`."""
        q, k, v = self._keyed(queries, keys, alive)
        new = written(k, v)
        before = jnp.zeros_like(new)
        if self.remembers:
            before, carry = states(new, carry, jnp.asarray(self.decay), first)
        return self._joined(read(q, k, v, before, new, self.causal), queries), carry

    def open(self, carry: Array, first: Array, agents: int) -> Array:
        """The state before the first turn of an instant."""
        if not self.remembers:
            return self._empty(first.shape[0])
        return carry * kept(jnp.asarray(self.decay), first)

    def turn(
        self, queries: Array, keys: Array, state: Array, agent: Array, alive: Array
    ) -> tuple[Array, Array]:
        """Retain for one agent, `[B,1,F]`; those before it have written into the state."""
        q, k, v = self._keyed(queries, keys, alive)
        out, state = turn(q, k, v, state)
        return self._joined(out, queries), state

    def close(self, state: Array) -> Array:
        """The carry after the last turn of an instant."""
        return state if self.remembers else self.carry(state.shape[0])

    def _empty(self, games: int) -> Array:
        return jnp.zeros((games, self.heads.count, self.heads.size, self.heads.size))

    def _keyed(self, queries: Array, keys: Array, alive: Array) -> tuple[Array, Array, Array]:
        """Queries, keys and values; the absent write nothing."""
        q, k, v = self.heads(queries, keys)
        return q, jnp.where(alive[..., None, None], k, 0.0), v

    def _joined(self, out: Array, queries: Array) -> Array:
        """Heads normalised each by itself, gated and joined (Sun et al. 2023, eq. 8)."""
        out = standardised(out)
        gate = jax.nn.silu(self.gate(queries))
        return self.out(gate * out.reshape(gate.shape))


def kept(decay: Array, first: Array) -> Array:
    """`[…,B,heads,1,1]` what is left of a state at an instant; nothing where an episode opens."""
    return jnp.where(first[..., None], 0.0, decay)[..., None, None]


def written(k: Array, v: Array) -> Array:
    """What the keys and values `[…,N,heads,D]` of an instant write into the state: `[…,heads,D,D]`.

    The sum of k vᵀ over the agents."""
    return jnp.einsum("...nhd,...nhe->...hde", k, v)


def states(new: Array, carry: Array, decay: Array, first: Array) -> tuple[Array, Array]:
    """States `[T,B,heads,D,D]` that are left at every instant before it writes `new`, and the last
    one after it has written."""

    def step(state: Array, row: tuple[Array, Array]) -> tuple[Array, Array]:
        left, own = row
        before = state * left
        return before + own, before

    last, before = jax.lax.scan(step, carry, (kept(decay, first), new))
    return before, last


def read(q: Array, k: Array, v: Array, before: Array, new: Array, causal: bool) -> Array:
    """What queries `[…,N,heads,D]` read from a state and from their own instant."""
    if not causal:
        return jnp.einsum("...nhd,...hde->...nhe", q, before + new)
    scores = jnp.einsum("...nhd,...mhd->...hnm", q, k) * jnp.tri(q.shape[-3])
    now = jnp.einsum("...hnm,...mhe->...nhe", scores, v)
    return jnp.einsum("...nhd,...hde->...nhe", q, before) + now


def turn(q: Array, k: Array, v: Array, state: Array) -> tuple[Array, Array]:
    """One agent, `[…,1,heads,D]`, writes into the state `[…,heads,D,D]`, then reads from it."""
    state = state + written(k, v)
    return jnp.einsum("...nhd,...hde->...nhe", q, state), state

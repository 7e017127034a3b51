"""Nets of agents that decide one after another: an encoder of what all see, and a decoder that
also reads the actions of the agents before.

Both forms compute the same: `decode` evaluates given actions of all agents at once, `turn` decides
for one agent after another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .attention import SHARED
from .layers import ACTIVATIONS, Dense, Rng, standardised
from .mlp import Parts


class SequenceLayer(Protocol):
    """How an agent reads from others: queries and keys `[T,B,N,F]` -> features `[T,B,N,F]`."""

    def carry(self, games: int) -> Any:
        """What is kept from instant to instant, before the first."""
        ...

    def __call__(
        self, queries: Array, keys: Array, carry: Any, first: Array, alive: Array
    ) -> tuple[Array, Any]:
        """All agents at once; `first` resets the carry, keys that are not `alive` are not read."""
        ...

    def open(self, carry: Any, first: Array, agents: int) -> Any:
        """The state before the first turn of an instant."""
        ...

    def turn(
        self, queries: Array, keys: Array, state: Any, agent: Array, alive: Array
    ) -> tuple[Array, Any]:
        """One agent, `[B,1,F]`, and the state after its turn."""
        ...

    def close(self, state: Any) -> Any:
        """The carry after the last turn of an instant."""
        ...


Look = Callable[[SequenceLayer, Array, Array, Any], tuple[Array, Any]]


class Feed(eqx.Module):
    """Two dense layers added to their input, normalised."""

    wide: Dense
    out: Dense
    activation: str = eqx.field(static=True)

    def __init__(self, rng: Rng, hidden: int, activation: str):
        self.wide = Dense(rng, SHARED, hidden, hidden)
        self.out = Dense(rng, SHARED, hidden, hidden, gain=1.0)
        self.activation = activation

    def __call__(self, x: Array) -> Array:
        return standardised(x + self.out(ACTIVATIONS[self.activation](self.wide(x))))


class EncoderBlock(eqx.Module):
    """Agents read from each other."""

    layer: SequenceLayer
    feed: Feed

    def __call__(self, x: Array, carry: Any, first: Array, alive: Array) -> tuple[Array, Any]:
        seen, carry = self.layer(x, x, carry, first, alive)
        return self.feed(standardised(x + seen)), carry


class DecoderBlock(eqx.Module):
    """Actions read from earlier ones, then the encoder's features read from all of these."""

    layer: SequenceLayer
    cross: SequenceLayer
    feed: Feed

    def __call__(
        self, x: Array, encoded: Array, states: tuple[Any, Any], look: Look
    ) -> tuple[Array, tuple[Any, Any]]:
        seen, own = look(self.layer, x, x, states[0])
        x = standardised(x + seen)
        seen, cross = look(self.cross, encoded, x, states[1])
        return self.feed(standardised(encoded + seen)), (own, cross)


class TurnCarry(NamedTuple):
    """What an `InTurn` keeps from instant to instant."""

    torso: Any
    encoder: tuple[Any, ...]  # by block
    decoder: tuple[tuple[Any, Any], ...]  # by block and layer


class InTurn(eqx.Module):
    """A torso for each observation, blocks of an encoder, and blocks of a decoder.

    Without blocks, features are the torso's."""

    torso: Any
    encoder: tuple[EncoderBlock, ...]
    decoder: tuple[DecoderBlock, ...]
    action: Dense | None  # embeds the action of the agent before; a first agent has a flag instead
    activation: str = eqx.field(static=True)

    def __init__(
        self,
        rng: Rng,
        torso: Any,
        layer: Callable[[bool], SequenceLayer],
        hidden: int,
        blocks: int,
        actions: int,
        activation: str,
    ):
        """`layer(causal)` makes a layer; `actions` is the width of an action."""
        self.torso = torso
        self.encoder = tuple(
            EncoderBlock(layer(False), Feed(rng, hidden, activation)) for _ in range(blocks)
        )
        self.decoder = tuple(
            DecoderBlock(layer(True), layer(True), Feed(rng, hidden, activation))
            for _ in range(blocks)
        )
        self.action = Dense(rng, SHARED, actions + 1, hidden) if blocks else None
        self.activation = activation

    def carry(self, games: int, rows: int) -> TurnCarry:
        return TurnCarry(
            self.torso.carry(games, rows),
            tuple(block.layer.carry(games) for block in self.encoder),
            tuple((block.layer.carry(games), block.cross.carry(games)) for block in self.decoder),
        )

    def encode(
        self, parts: Parts, carry: TurnCarry, first: Array, alive: Array
    ) -> tuple[Array, TurnCarry]:
        """Features `[T,B,N,H]` of what the agents see."""
        x, torso = self.torso(parts, carry.torso, first)
        after = []
        for block, state in zip(self.encoder, carry.encoder, strict=True):
            x, state = block(x, state, first, alive)
            after.append(state)
        return x, carry._replace(torso=torso, encoder=tuple(after))

    def decode(
        self, encoded: Array, action: Array, carry: TurnCarry, first: Array, alive: Array
    ) -> tuple[Array, TurnCarry]:
        """Features `[T,B,N,H]` of agents who know the actions `[T,B,N,A]` of those before them."""
        known = before(alive, True)
        encoded = present(encoded, alive)

        def look(layer: SequenceLayer, queries: Array, keys: Array, state: Any) -> Any:
            return layer(queries, keys, state, first, known)

        opening = jnp.arange(action.shape[-2])[:, None] == 0
        x, states = self._decoded(encoded, before(action, 0.0), opening, carry.decoder, look)
        return x, carry._replace(decoder=states)

    def open(self, carry: TurnCarry, first: Array, agents: int) -> tuple[tuple[Any, Any], ...]:
        """The decoder's states before the first turn of an instant, of games `[B,…]`."""
        return tuple(
            (block.layer.open(own, first, agents), block.cross.open(cross, first, agents))
            for block, (own, cross) in zip(self.decoder, carry.decoder, strict=True)
        )

    def turn(
        self,
        encoded: Array,
        action: Array,
        states: tuple[tuple[Any, Any], ...],
        agent: Array,
        known: Array,
    ) -> tuple[Array, tuple[tuple[Any, Any], ...]]:
        """Features `[B,1,H]` of one agent, from the action `[B,1,A]` of the one before it.

        `encoded` is `present`. `known [B,1]` bool: that one is there, or this is the first."""

        def look(layer: SequenceLayer, queries: Array, keys: Array, state: Any) -> Any:
            return layer.turn(queries, keys, state, agent, known)

        return self._decoded(encoded, action, jnp.reshape(agent == 0, (1, 1)), states, look)

    def close(self, carry: TurnCarry, states: tuple[tuple[Any, Any], ...]) -> TurnCarry:
        """The carry after the last turn of an instant."""
        after = tuple(
            (block.layer.close(own), block.cross.close(cross))
            for block, (own, cross) in zip(self.decoder, states, strict=True)
        )
        return carry._replace(decoder=after)

    def _decoded(
        self,
        encoded: Array,
        action: Array,
        opening: Array,
        states: tuple[tuple[Any, Any], ...],
        look: Look,
    ) -> tuple[Array, tuple[tuple[Any, Any], ...]]:
        """The decoder, wherever its layers look."""
        if self.action is None:
            return encoded, states
        embedded = self.action(action, opening.astype(action.dtype))
        x = standardised(ACTIVATIONS[self.activation](embedded))
        after = []
        for block, state in zip(self.decoder, states, strict=True):
            x, state = block(x, encoded, state, look)
            after.append(state)
        return x, tuple(after)


def present(encoded: Array, alive: Array) -> Array:
    """The encoder's features, 0 for the absent: later agents may read them."""
    return jnp.where(alive[..., None], encoded, 0.0)


def before(rows: Array, first: Any) -> Array:
    """Each agent's predecessor's row of `[T,B,N]` or `[T,B,N,A]`, and `first` for the first."""
    start = jnp.full_like(rows[:, :, :1], first)
    return jnp.concatenate([start, rows[:, :, :-1]], 2)

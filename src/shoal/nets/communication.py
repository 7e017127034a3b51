"""Torsos whose agents exchange messages: acting then needs the whole team, so it is not
decentralised.

Each encodes what an agent sees, then exchanges messages in rounds at the same instant. Its last
input part is `HEARD` (`inputs.py`): whom each agent hears.
"""

from __future__ import annotations

from math import gcd
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .gru import Gru
from .layers import Dense, Rng, standardised
from .mlp import Mlp, Parts, Style

HEADS = 4  # of the transformer, where they divide its units


class Communicating(eqx.Module):
    """Base of these torsos: dense layers or a GRU, then rounds of a member's `channel`."""

    recurrent: ClassVar[bool] = False
    alone: ClassVar[str] = "mlp"  # the torso of nets that have nobody to hear
    inner: Any
    rounds: tuple[Any, ...]

    def __init__(
        self,
        rng: Rng,
        owner: tuple[int, ...],
        ins: int,
        hidden: int,
        layers: int,
        style: Style,
        rounds: int = 1,
    ):
        encoder = Gru if self.recurrent else Mlp
        self.inner = encoder(rng, owner, ins, hidden, layers, style)
        self.rounds = tuple(self.channel(rng, owner, hidden, style) for _ in range(rounds))

    def channel(self, rng: Rng, owner: tuple[int, ...], hidden: int, style: Style) -> Any:
        """One round: features `[T,B,N,H]` and whom each agent hears `[T,B,N,N]` -> features."""
        raise NotImplementedError

    def carry(self, games: int, rows: int) -> Any:
        return self.inner.carry(games, rows)

    def __call__(self, parts: Parts, carry: Any, first: Array) -> tuple[Array, Any]:
        *seen, heard = parts
        features, carry = self.inner(tuple(seen), carry, first)
        others = heard * (1 - jnp.eye(features.shape[-2]))  # nobody sends to itself
        for one in self.rounds:
            features = one(features, others)
        return features, carry


class MeanChannel(eqx.Module):
    """The mean of the others' features, through a layer of its own (CommNet, eq. 1-2)."""

    own: Dense
    style: Style = eqx.field(static=True)

    def __init__(self, rng: Rng, owner: tuple[int, ...], hidden: int, style: Style):
        self.own = Dense(rng, owner, 2 * hidden, hidden)
        self.style = style

    def __call__(self, features: Array, heard: Array) -> Array:
        return self.style(self.own(features, mean_heard(features, heard)))


class GatedChannel(eqx.Module):
    """The mean of the features of those who choose to speak (IC3Net).

    The gate is open or shut; gradients pass through its probability (straight-through).
    """

    gate: Dense
    mean: MeanChannel

    def __init__(self, rng: Rng, owner: tuple[int, ...], hidden: int, style: Style):
        self.gate = Dense(rng, owner, hidden, 1, gain=0.01)
        self.mean = MeanChannel(rng, owner, hidden, style)

    def __call__(self, features: Array, heard: Array) -> Array:
        probability = jax.nn.sigmoid(self.gate(features))
        gate = probability + jax.lax.stop_gradient((probability >= 0.5) - probability)
        message = mean_heard(features * gate, heard)
        return self.mean.style(self.mean.own(features, message))


class TargetedChannel(eqx.Module):
    """Messages weighed by how well their signature answers the receiver's query (TarMAC, eq. 4)."""

    query: Dense
    signature: Dense
    message: Dense
    own: Dense
    style: Style = eqx.field(static=True)

    def __init__(self, rng: Rng, owner: tuple[int, ...], hidden: int, style: Style):
        width = max(hidden // 4, 1)
        self.query = Dense(rng, owner, hidden, width, gain=1.0)
        self.signature = Dense(rng, owner, hidden, width, gain=1.0)
        self.message = Dense(rng, owner, hidden, hidden, gain=1.0)
        self.own = Dense(rng, owner, 2 * hidden, hidden)
        self.style = style

    def __call__(self, features: Array, heard: Array) -> Array:
        attention = attended(self.query(features), self.signature(features), heard)
        return self.style(self.own(features, attention @ self.message(features)))


class Block(eqx.Module):
    """Attention over the agents, then a dense layer; both add to what was there (pre-norm)."""

    projections: tuple[Dense, Dense, Dense]  # queries, keys, values
    joined: Dense
    inner: Dense
    out: Dense
    heads: int = eqx.field(static=True)

    def __init__(self, rng: Rng, owner: tuple[int, ...], hidden: int, style: Style):
        query, key, value = (Dense(rng, owner, hidden, hidden, gain=1.0) for _ in range(3))
        self.projections = (query, key, value)
        self.joined = Dense(rng, owner, hidden, hidden, gain=0.1)
        self.inner = Dense(rng, owner, hidden, hidden)
        self.out = Dense(rng, owner, hidden, hidden, gain=0.1)
        self.heads = gcd(hidden, HEADS)

    def __call__(self, features: Array, heard: Array) -> Array:
        heard = jnp.maximum(heard, jnp.eye(features.shape[-2]))  # everybody attends to itself
        normed = standardised(features)
        query, key, value = (self._split(layer(normed)) for layer in self.projections)
        mixed = attended(query, key, heard[..., None, :, :]) @ value
        features = features + self.joined(jnp.moveaxis(mixed, -3, -2).reshape(features.shape))
        return features + self.out(jax.nn.relu(self.inner(standardised(features))))

    def _split(self, x: Array) -> Array:
        """Heads before agents: `[…,N,H]` -> `[…,heads,N,H/heads]`."""
        return jnp.moveaxis(x.reshape(*x.shape[:-1], self.heads, -1), -2, -3)


class CommNet(Communicating):
    """Dense layers, then rounds of mean messages (Sukhbaatar et al. 2016)."""

    def channel(self, rng: Rng, owner: tuple[int, ...], hidden: int, style: Style) -> Any:
        return MeanChannel(rng, owner, hidden, style)


class IC3Net(Communicating):
    """A GRU, then rounds of mean messages behind gates (Singh et al. 2019)."""

    recurrent: ClassVar[bool] = True
    alone: ClassVar[str] = "gru"

    def channel(self, rng: Rng, owner: tuple[int, ...], hidden: int, style: Style) -> Any:
        return GatedChannel(rng, owner, hidden, style)


class TarMAC(Communicating):
    """A GRU, then rounds of messages to those who ask for them (Das et al. 2019)."""

    recurrent: ClassVar[bool] = True
    alone: ClassVar[str] = "gru"

    def channel(self, rng: Rng, owner: tuple[int, ...], hidden: int, style: Style) -> Any:
        return TargetedChannel(rng, owner, hidden, style)


class Transformer(Communicating):
    """Dense layers, then blocks of attention over the agents (Vaswani et al. 2017)."""

    def channel(self, rng: Rng, owner: tuple[int, ...], hidden: int, style: Style) -> Any:
        return Block(rng, owner, hidden, style)


def mean_heard(features: Array, heard: Array) -> Array:
    """`[T,B,N,H]` mean features of those whom each agent hears; 0 if it hears nobody."""
    return heard @ features / jnp.maximum(heard.sum(-1, keepdims=True), 1.0)


def attended(query: Array, key: Array, heard: Array) -> Array:
    """`[…,N,N]` attention of each agent to those whom it hears; all 0 if it hears nobody."""
    scores = query @ jnp.swapaxes(key, -1, -2) / query.shape[-1] ** 0.5
    scores = jnp.where(heard > 0, scores, -1e9)
    return jax.nn.softmax(scores) * (heard > 0)

"""The feed-forward torso, and `Style`, which all torsos share."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .layers import ACTIVATIONS, Dense, Rng, standardised

Parts = tuple[Array, ...]


class Style(NamedTuple):
    """What follows each hidden layer: activation and normalisation."""

    activation: str
    layer_norm: bool

    def __call__(self, x: Array) -> Array:
        x = ACTIVATIONS[self.activation](x)
        return standardised(x) if self.layer_norm else x


class Mlp(eqx.Module):
    """Dense layers without recurrence."""

    recurrent: ClassVar[bool] = False
    layers: tuple[Dense, ...]
    style: Style = eqx.field(static=True)

    def __init__(
        self, rng: Rng, owner: tuple[int, ...], ins: int, hidden: int, layers: int, style: Style
    ):
        self.layers = tuple(Dense(rng, owner, hidden if i else ins, hidden) for i in range(layers))
        self.style = style

    def carry(self, games: int, rows: int) -> Array:
        return jnp.zeros((games, rows, 0))

    def __call__(self, parts: Parts, carry: Array, first: Array) -> tuple[Array, Array]:
        for layer in self.layers:
            parts = (self.style(layer(*parts)),)
        return parts[0], carry

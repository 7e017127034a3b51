"""Whole numbers of observations, read one-hot."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .mlp import Parts


class OneHot(eqx.Module):
    """An inner torso that reads some parts of its input one-hot, number by number."""

    inner: Any  # any torso
    at: tuple[int, ...] = eqx.field(static=True)  # indices of those parts
    most: int = eqx.field(static=True)  # numbers are read from -most to most

    def carry(self, games: int, rows: int) -> Any:
        return self.inner.carry(games, rows)

    def __call__(self, parts: Parts, carry: Any, first: Array) -> tuple[Array, Any]:
        read = (one_hot(part, self.most) if i in self.at else part for i, part in enumerate(parts))
        return self.inner(tuple(read), carry, first)


def columns(most: int) -> int:
    """Inputs that one number becomes."""
    return 2 * most + 1


def one_hot(numbers: Array, most: int) -> Array:
    """Rounded numbers `[…,F]` from -most to most as `[…,F·K]`; those beyond count as the ends."""
    whole = jnp.clip(jnp.floor(numbers + 0.5), -most, most)[..., None]
    found = (whole == jnp.arange(-most, most + 1)).astype(jnp.float32)
    return found.reshape(*numbers.shape[:-1], -1)

"""The actor and the critic of the policy family."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jax import Array

from .layers import Dense
from .mlp import Parts


class Actor(eqx.Module):
    """A torso and a head: inputs -> a distribution over actions, features, carry."""

    torso: Any
    head: Any

    def __call__(
        self, parts: Parts, carry: Any, first: Array, legal: Array
    ) -> tuple[Any, Array, Any]:
        features, carry = self.torso(parts, carry, first)
        return self.head(features, legal), features, carry


class Critic(eqx.Module):
    """A torso and a linear layer: inputs -> values, carry."""

    torso: Any
    out: Dense

    def __call__(self, parts: Parts, carry: Any, first: Array) -> tuple[Array, Any]:
        features, carry = self.torso(parts, carry, first)
        return self.out(features), carry

    def rescaled(self, ratio: Array, shift: Array | float) -> Critic:
        """Outputs times `ratio`, plus `shift`."""
        return Critic(self.torso, self.out.rescaled(ratio, shift))


class IdentityTorso(eqx.Module):
    """Identity: the torso of a critic that reads the actor's features."""

    def carry(self, games: int, rows: int) -> Array:
        return jnp.zeros((games, rows, 0))

    def __call__(self, parts: Parts, carry: Any, first: Array) -> tuple[Array, Any]:
        return parts[0], carry

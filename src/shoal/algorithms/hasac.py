"""Heterogeneous-agent SAC (HASAC; Liu et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import Array

from ..nets.layers import Rng
from .learning_in_turn import InTurnConfig, PathwiseInTurn
from .sac import SAC, SACConfig


@dataclass(frozen=True)
class HASACConfig(InTurnConfig, SACConfig):
    """SAC's settings; the reward is the team's, every agent has its own actor, all one critic."""

    critic_sharing: str = "shared"
    """Parameters of the critics: shared, own or a partition; empty takes the actors'."""


class HASAC(SAC, PathwiseInTurn[SACConfig]):
    """SAC whose agents learn one after another, each beside the others' present policies.

    Each actor has a temperature of its own.
    """

    name = "hasac"
    Config = HASACConfig

    def nets(self, rng: Rng) -> dict[str, Any]:
        nets = super().nets(rng)
        return nets | {"alpha": jnp.full((max(self.owner) + 1,), nets["alpha"])}

    def log_alpha(self, params: dict[str, Any]) -> Array:
        """`[N]` each agent's."""
        return jnp.take(params["alpha"], jnp.asarray(self.owner))

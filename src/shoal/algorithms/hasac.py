"""Heterogeneous-agent SAC (HASAC; Liu et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ShoalError
from ..types import Spec
from .learning_in_turn import InTurnConfig, PathwiseInTurn
from .sac import SAC, SACConfig


@dataclass(frozen=True)
class HASACConfig(InTurnConfig, SACConfig):
    """SAC's settings; the reward is the team's, every agent has its own actor, all one critic."""

    critic_sharing: str = "shared"
    """Parameters of the critics: shared, own or a partition; empty takes the actors'."""
    alpha_sharing: str = ""
    """Temperatures: as the actors."""


class HASAC(SAC, PathwiseInTurn[SACConfig]):
    """SAC whose agents learn one after another, each beside the others' present policies.

    Each actor has a temperature of its own.
    """

    name = "hasac"
    Config = HASACConfig

    def __init__(self, config: HASACConfig, spec: Spec):
        super().__init__(config, spec)
        if self.alpha_owner != self.owner:
            raise ShoalError(
                f"hasac gives each actor a temperature, so alpha_sharing cannot be"
                f" {config.alpha_sharing!r}: leave it empty"
            )

"""Heterogeneous-agent TD3 (HATD3; Zhong et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ShoalError
from ..types import Spec
from .ddpg import DDPGConfig
from .learning_in_turn import InTurnConfig, PathwiseInTurn
from .td3 import TD3, TD3Config


@dataclass(frozen=True)
class HATD3Config(InTurnConfig, TD3Config):
    """TD3's settings; the reward is the team's, every agent has its own actor, all one critic."""

    critic_sharing: str = "shared"
    """Parameters of the critics: shared, own or a partition; empty takes the actors'."""


class HATD3(TD3, PathwiseInTurn[DDPGConfig]):
    """TD3 whose agents learn one after another, each beside the others' present policies."""

    name = "hatd3"
    Config = HATD3Config

    def __init__(self, config: HATD3Config, spec: Spec):
        super().__init__(config, spec)
        if config.policies > 1:
            raise ShoalError("hatd3's agents have one policy each: set policies to 1")

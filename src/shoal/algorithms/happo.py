"""Heterogeneous-agent PPO (HAPPO; Kuba et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass

from .learning_in_turn import InTurnConfig, PolicyInTurn
from .ppo import PPO, PPOConfig


@dataclass(frozen=True)
class HAPPOConfig(InTurnConfig, PPOConfig):
    """PPO's settings; the reward is the team's, and every agent has its own actor."""


class HAPPO(PPO, PolicyInTurn[PPOConfig]):
    """PPO whose agents learn one after another, while the others stand still."""

    name = "happo"
    Config = HAPPOConfig

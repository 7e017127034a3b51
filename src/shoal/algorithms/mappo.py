"""Multi-agent PPO with a central critic (MAPPO; Yu et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..nets.inputs import ID, STATE
from .ppo import PPO, PPOConfig


@dataclass(frozen=True)
class MAPPOConfig(PPOConfig):
    """PPO's settings; the reward is the team's."""

    reward: Literal["own", "mean", "sum"] = "mean"
    """What each agent learns from: its own reward, or the team's pooled by mean or sum."""


class MAPPO(PPO):
    """PPO whose critic sees the state."""

    name = "mappo"
    Config = MAPPOConfig
    critic_sees = (STATE, ID)

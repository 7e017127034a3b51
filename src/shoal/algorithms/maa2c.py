"""Multi-agent A2C with a central critic (MAA2C; Papoudakis et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..nets.inputs import ID, STATE
from .a2c import A2C
from .on_policy_config import OnPolicyConfig


@dataclass(frozen=True)
class MAA2CConfig(OnPolicyConfig):
    """A2C's settings; the reward is the team's."""

    reward: Literal["own", "mean", "sum"] = "mean"
    """What each agent learns from: its own reward, or the team's pooled by mean or sum."""


class MAA2C(A2C):
    """A2C whose critic sees the state."""

    name = "maa2c"
    Config = MAA2CConfig
    critic_sees = (STATE, ID)

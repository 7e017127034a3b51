"""Heterogeneous-agent A2C (HAA2C; Zhong et al. 2024)."""

from __future__ import annotations

from dataclasses import dataclass

from .a2c import A2C
from .learning_in_turn import InTurnConfig, PolicyInTurn
from .on_policy_config import OnPolicyConfig


@dataclass(frozen=True)
class HAA2CConfig(InTurnConfig, OnPolicyConfig):
    """A2C's settings; the reward is the team's, and every agent has its own actor."""


class HAA2C(A2C, PolicyInTurn[OnPolicyConfig]):
    """A2C whose agents learn one after another, while the others stand still."""

    name = "haa2c"
    Config = HAA2CConfig

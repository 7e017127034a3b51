"""Advantage actor-critic, synchronous (A2C; Mnih et al. 2016). With several agents: IA2C."""

from __future__ import annotations

from .on_policy import OnPolicy
from .on_policy_config import OnPolicyConfig


class A2C(OnPolicy):
    """−log π · A, each agent with a critic on its own observation."""

    name = "a2c"
    Config = OnPolicyConfig

"""PQN with VDN's mixer (Gallici et al. 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..learning.memory import Rollout
from .pqn import PQN, Learner, PQNConfig
from .vdn import Summed


@dataclass(frozen=True)
class PQNMixConfig(PQNConfig):
    """PQN's settings; the reward is the team's."""

    reward: Literal["mean", "sum"] = "mean"
    """The team's reward: the mean or the sum of its agents'."""


class PQNVDN(Summed[PQNMixConfig, Learner, Rollout], PQN[PQNMixConfig]):
    """PQN whose mixer is a sum."""

    name = "pqn_vdn"
    Config = PQNMixConfig

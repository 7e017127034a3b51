"""Sable, a sequence model with retention over agents and time (Mahjoub et al. 2025)."""

from __future__ import annotations

from dataclasses import dataclass

from ..nets.layers import Rng
from ..nets.retention import Retention
from .base import fraction
from .deciding_in_turn import TurnConfig, TurnPPO
from .net_config import NetConfig


@dataclass(frozen=True)
class SableConfig(TurnConfig):
    """Sable's own settings beside MAT's."""

    decay: float = 0.8
    """Factor on 1 − 2^−(5+h), the share of its memory that head h keeps from step to step; 0 is
    without memory."""

    def __post_init__(self) -> None:
        super().__post_init__()
        fraction(self, "decay")


class Sable(TurnPPO):
    """PPO of agents that decide one after another and retain what all of them saw and did, in this
    step and in those before."""

    name = "sable"
    Config = SableConfig
    config: SableConfig

    @classmethod
    def remembers(cls, config: NetConfig) -> bool:
        assert isinstance(config, SableConfig)
        return super().remembers(config) or (config.decay > 0 and config.blocks > 0)

    def layer(self, rng: Rng, causal: bool) -> Retention:
        rates = tuple(self.config.decay * (1 - 2.0 ** -(5 + h)) for h in range(self.config.heads))
        return Retention(rng, self.config.hidden, rates, causal)

"""Multi-Agent Transformer (MAT; Wen et al. 2022)."""

from __future__ import annotations

from ..nets.attention import Attention
from ..nets.layers import Rng
from .deciding_in_turn import TurnConfig, TurnPPO


class MAT(TurnPPO):
    """PPO of agents that decide one after another and attend to each other's observations and
    actions."""

    name = "mat"
    Config = TurnConfig

    def layer(self, rng: Rng, causal: bool) -> Attention:
        return Attention(rng, self.config.hidden, self.config.heads, causal)

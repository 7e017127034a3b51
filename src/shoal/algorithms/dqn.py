"""Deep Q-learning (DQN; Mnih et al. 2015), double (van Hasselt et al. 2016). With several agents:
IQL (Tan 1993)."""

from __future__ import annotations

from .value import Value, ValueConfig


class DQN(Value):
    """Every agent learns utilities of its own, as if the others were part of the game."""

    name = "dqn"
    Config = ValueConfig

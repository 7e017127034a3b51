"""Multi-agent DDPG with central critics (MADDPG; Lowe et al. 2017)."""

from __future__ import annotations

from .ddpg import DDPG


class MADDPG(DDPG):
    """DDPG whose critics see the state and every agent's action; actors see their own observation
    alone."""

    name = "maddpg"
    central = True

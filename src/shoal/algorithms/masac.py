"""Multi-agent SAC with central critics (MASAC)."""

from __future__ import annotations

from .sac import SAC


class MASAC(SAC):
    """SAC whose critics see the state and every agent's action."""

    name = "masac"
    central = True

"""Multi-agent TD3 with central critics (MATD3; Ackermann et al. 2019)."""

from __future__ import annotations

from .td3 import TD3


class MATD3(TD3):
    """TD3 whose critics see the state and every agent's action."""

    name = "matd3"
    central = True

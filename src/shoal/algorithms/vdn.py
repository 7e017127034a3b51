"""Value decomposition networks (VDN; Sunehag et al. 2018)."""

from __future__ import annotations

from jax import Array

from ..types import View
from .value import MixConfig, Value, taken


class VDN(Value[MixConfig]):
    """DQN whose mixer is a sum."""

    name = "vdn"
    Config = MixConfig
    mixes = True

    def joint(self, params: dict, utilities: Array, action: Array, view: View) -> Array:
        return taken(utilities, action, view).sum(-1, keepdims=True)

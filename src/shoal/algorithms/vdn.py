"""Value decomposition networks (VDN; Sunehag et al. 2018)."""

from __future__ import annotations

from jax import Array

from ..learning.memory import Replay
from ..types import View
from .base import LearnerT, MemoryT
from .off_policy import Learner
from .utilities import Utilities, UtilityConfigT, taken
from .value import MixConfig, Value


class Summed(Utilities[UtilityConfigT, LearnerT, MemoryT]):
    """Utilities whose mixer is a sum."""

    mixes = True

    def joint(self, params: dict, utilities: Array, action: Array, view: View) -> Array:
        return taken(utilities, action, view).sum(-1, keepdims=True)


class VDN(Summed[MixConfig, Learner, Replay], Value[MixConfig]):
    """DQN whose mixer is a sum."""

    name = "vdn"
    Config = MixConfig

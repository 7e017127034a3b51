"""Monotonic value function factorisation (QMIX; Rashid et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jax import Array

from ..learning.memory import Replay
from ..nets.inputs import STATE
from ..nets.layers import Rng
from ..nets.mixers import Monotone
from ..types import View
from .base import LearnerT, MemoryT, positive
from .off_policy import Learner
from .utilities import Utilities, UtilityConfigT, taken
from .value import MixConfig, Value


@dataclass(frozen=True)
class MonotonicConfig:
    """Settings of the mixing net."""

    embedding: int = 32
    """Units of the mixing net."""
    hyper: int = 64
    """Hidden units of the nets that make its weights from the state."""


@dataclass(frozen=True)
class QMIXConfig(MonotonicConfig, MixConfig):
    """QMIX's own settings beside the family's."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "embedding", "hyper")


class Monotonic(Utilities[UtilityConfigT, LearnerT, MemoryT]):
    """Utilities whose mixer is a net that rises with each and is fed by the state (eq. 4-6)."""

    mixes = True
    mixer_sees = (STATE,)

    def mixer(self, rng: Rng) -> dict[str, Any]:
        c: Any = self.config  # it is a MonotonicConfig, too
        return {"mixer": Monotone(rng, self.spec.n, self.spec.state, c.embedding, c.hyper)}

    def joint(self, params: dict, utilities: Array, action: Array, view: View) -> Array:
        return params["mixer"](taken(utilities, action, view), view.state)


class QMIX(Monotonic[QMIXConfig, Learner, Replay], Value[QMIXConfig]):
    """VDN whose mixer is monotonic."""

    name = "qmix"
    Config = QMIXConfig

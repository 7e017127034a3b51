"""Monotonic value function factorisation (QMIX; Rashid et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jax import Array

from ..nets.inputs import STATE
from ..nets.layers import Rng
from ..nets.mixers import Monotone
from ..types import View
from .base import positive
from .value import MixConfig, Value, taken


@dataclass(frozen=True)
class QMIXConfig(MixConfig):
    """QMIX's own settings beside the family's."""

    embedding: int = 32
    """Units of the mixing net."""
    hyper: int = 64
    """Hidden units of the nets that make its weights from the state."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "embedding", "hyper")


class QMIX(Value[QMIXConfig]):
    """VDN whose mixer is a net that rises with every utility and is fed by the state (eq. 4-6)."""

    name = "qmix"
    Config = QMIXConfig
    mixes = True
    mixer_sees = (STATE,)

    def mixer(self, rng: Rng) -> dict[str, Any]:
        c = self.config
        return {"mixer": Monotone(rng, self.spec.n, self.spec.state, c.embedding, c.hyper)}

    def joint(self, params: dict, utilities: Array, action: Array, view: View) -> Array:
        return params["mixer"](taken(utilities, action, view), view.state)

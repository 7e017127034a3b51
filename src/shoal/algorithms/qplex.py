"""Duplex dueling multi-agent Q-learning (QPLEX; Wang et al. 2021)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from jax import Array

from ..nets.heads import best_action
from ..nets.inputs import STATE
from ..nets.layers import Rng
from ..nets.mixers import Duplex
from ..types import View
from .base import positive
from .utilities import joint_action, taken
from .value import MixConfig, Value


@dataclass(frozen=True)
class QPLEXConfig(MixConfig):
    """QPLEX's own settings beside the family's."""

    heads: int = 4
    """Attention heads that weigh the advantages."""
    hyper: int = 64
    """Hidden units of the nets that make its weights from the state."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "heads", "hyper")


class QPLEX(Value[QPLEXConfig]):
    """QMIX whose mixer is dueling: any joint values whose best action is each agent's own best (eq.
    6-10)."""

    name = "qplex"
    Config = QPLEXConfig
    mixes = True
    mixer_sees = (STATE,)

    def mixer(self, rng: Rng) -> dict[str, Any]:
        c = self.config
        spec = self.spec
        return {"mixer": Duplex(rng, spec.n, spec.state, spec.action.size, c.heads, c.hyper)}

    def joint(self, params: dict, utilities: Array, action: Array, view: View) -> Array:
        q, top = (taken(utilities, a, view) for a in (action, best_action(utilities, view.legal)))
        return params["mixer"](q, top, view.state, joint_action(action, view, self.spec))

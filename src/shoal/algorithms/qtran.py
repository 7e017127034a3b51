"""Learning to factorise with transformation (QTRAN-base; Son et al. 2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..learning.trees import at
from ..nets.heads import best_action
from ..nets.inputs import STATE
from ..nets.layers import Rng
from ..nets.mixers import Hyper
from ..types import View
from .base import Metrics, not_negative, positive
from .off_policy import Batch, Learner
from .utilities import joint_action, taken
from .value import MixConfig, Value


@dataclass(frozen=True)
class QTRANConfig(MixConfig):
    """QTRAN's own settings beside the family's."""

    hyper: int = 64
    """Units of the joint nets."""
    opt: float = 1.0
    """Weight of the condition that utilities add up to the joint value at the agents' best
    actions."""
    nopt: float = 1.0
    """Weight of the condition that they never add up to less than it at other actions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "hyper")
        not_negative(self, "opt", "nopt")


class QTRAN(Value[QTRANConfig]):
    """A free joint value, and a sum of utilities that is held to agree with it on what is best (eq.
    4-7)."""

    name = "qtran"
    Config = QTRANConfig
    mixes = True
    mixer_sees = (STATE,)

    def mixer(self, rng: Rng) -> dict[str, Any]:
        size = self.spec.n * self.spec.action.size
        state = self.spec.state
        hyper = self.config.hyper
        return {
            "joint": Hyper(rng, state + size, 1, hyper, hyper),
            "value": Hyper(rng, state, 1, hyper, hyper),
        }

    def joint(self, params: dict, utilities: Array, action: Array, view: View) -> Array:
        """Q of the joint action, from its own net, not from utilities."""
        return params["joint"](view.state, joint_action(action, view, self.spec))

    def losses(
        self, params: dict, learner: Learner, batch: Batch
    ) -> tuple[Array, tuple[Metrics, Array]]:
        online, follower, chooser = self.unrolled(params, learner, batch)
        view = batch.context.view
        greedy = best_action(chooser, view.legal)
        action = batch.window.action
        played = at(view, np.s_[:-1])
        target = self.targets(batch, self.joint(learner.target, follower, greedy, view))
        q = self.joint(params, online, action, played)
        loss, (metrics, wrong) = self.regression(q, target, batch)
        top = best_action(online[:-1], played.legal)
        fixed = jax.lax.stop_gradient
        value = params["value"](played.state)
        # sum of utilities + V - Q, at the agents' own best actions and at those taken (eq. 4)
        gaps = [
            taken(online[:-1], a, played).sum(-1, keepdims=True)
            + value
            - fixed(self.joint(params, online, a, played))
            for a in (top, action)
        ]
        weight = self.weight(batch) * batch.importance[:, None]
        opt = (gaps[0] ** 2 * weight).sum()
        nopt = (jnp.minimum(gaps[1], 0.0) ** 2 * weight).sum()
        metrics |= {"opt_loss": opt, "nopt_loss": nopt}
        return loss + self.config.opt * opt + self.config.nopt * nopt, (metrics, wrong)

"""Weighted QMIX (CW-QMIX and OW-QMIX; Rashid et al. 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..learning.trees import at
from ..nets.heads import best_action
from ..nets.layers import Rng
from ..nets.mixers import UnrestrictedMixer
from ..types import View
from .base import Metrics, fraction, positive
from .off_policy import Batch, Learner
from .qmix import QMIX, QMIXConfig
from .utilities import taken


@dataclass(frozen=True)
class WQMIXConfig(QMIXConfig):
    """Weighted QMIX's own settings beside QMIX's."""

    alpha: float = 0.1
    """Weight of the errors that count less."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "alpha")
        fraction(self, "alpha")


class Weighted(QMIX):
    """QMIX towards an unrestricted Q*, whose errors weigh less where being wrong is harmless (eq.
    5, algorithm 1)."""

    Config = WQMIXConfig
    config: WQMIXConfig

    def mixer(self, rng: Rng) -> dict[str, Any]:
        free = UnrestrictedMixer(rng, self.spec.n, self.spec.state, self.config.hyper)
        return super().mixer(rng) | {"central_agents": self.utility(rng), "central_mixer": free}

    def central(self, params: dict, batch: Batch) -> Array:
        """Utilities that Q* mixes, from nets of its own."""
        return self.replayed(params["central_agents"], batch)

    def star(self, params: dict, utilities: Array, action: Array, view: View) -> Array:
        """Q* of a joint action."""
        return params["central_mixer"](taken(utilities, action, view), view.state)

    def losses(
        self, params: dict, learner: Learner, batch: Batch
    ) -> tuple[Array, tuple[Metrics, Array]]:
        online, _, chooser = self.unrolled(params, learner, batch)
        view = batch.context.view
        greedy = best_action(chooser, view.legal)
        action = batch.window.action
        played = at(view, np.s_[:-1])
        inner = self.central(params, batch)[:-1]
        target = self.targets(
            batch, self.star(learner.target, self.central(learner.target, batch), greedy, view)
        )
        star = self.star(params, inner, action, played)
        q = self.joint(params, online[:-1], action, played)
        top = jnp.where(played.alive, best_action(online[:-1], played.legal), action)
        lighter = self.lighter(q, target, action, top, self.star(params, inner, top, played))
        loss, (metrics, wrong) = self.regression(
            q, target, batch, jnp.where(lighter, self.config.alpha, 1.0)
        )
        central, _ = self.regression(star, target, batch)
        return loss + central, (metrics | {"central_loss": central}, wrong)

    def lighter(self, q: Array, target: Array, action: Array, top: Array, star_top: Array) -> Array:
        """`[T,B,1]` True where an error gets the lower weight."""
        raise NotImplementedError


class OWQMIX(Weighted):
    """Optimistically: an error counts less where the mix is too high already (eq. 8)."""

    name = "owqmix"

    def lighter(self, q: Array, target: Array, action: Array, top: Array, star_top: Array) -> Array:
        return q >= target


class CWQMIX(Weighted):
    """Centrally: an error counts less unless the action is the best, or better than Q* thinks the
    best is (eq. 7)."""

    name = "cwqmix"

    def lighter(self, q: Array, target: Array, action: Array, top: Array, star_top: Array) -> Array:
        return (target <= star_top) & (action != top).any(-1, keepdims=True)

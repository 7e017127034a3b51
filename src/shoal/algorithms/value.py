"""The value family: utilities learnt from a replay.

A member defines the mixer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from jax import Array
from typing_extensions import TypeVar

from ..learning.memory import Replay
from ..learning.trees import at
from ..nets.heads import best_action
from ..types import Clock
from .base import Metrics
from .off_policy import Batch, Learner, OffPolicy, OffPolicyConfig, gradients, surprise
from .utilities import Utilities, UtilityConfig


@dataclass(frozen=True)
class ValueConfig(UtilityConfig, OffPolicyConfig):
    """Settings every member of the family has."""

    double: bool = True
    """Let the online net choose the target's action (double Q-learning)."""


@dataclass(frozen=True)
class MixConfig(ValueConfig):
    """The family's settings; the reward is the team's."""

    reward: Literal["mean", "sum"] = "mean"
    """The team's reward: the mean or the sum of its agents'."""


ValueConfigT = TypeVar("ValueConfigT", bound=ValueConfig, default=ValueConfig)


class Value(Utilities[ValueConfigT, Learner, Replay], OffPolicy[ValueConfigT]):
    """Base of the family; members override `mixer` and `joint`, or `losses`."""

    def improve(
        self, learner: Learner, batch: Batch, key: Array, clock: Clock
    ) -> tuple[Learner, Metrics, Array]:
        return self.descent(self.losses, learner, batch, clock)

    def descent(
        self, losses: Callable, learner: Learner, batch: Batch, clock: Clock
    ) -> tuple[Learner, Metrics, Array]:
        """A gradient step of every part on these losses."""
        grads, metrics, wrong = gradients(losses, learner.params, learner, batch)
        learner, norms = self.descended(learner, tuple(learner.params), grads, clock)
        return self.followed(learner), metrics | norms | {"epsilon": self.epsilon(clock)}, wrong

    def losses(
        self, params: dict, learner: Learner, batch: Batch
    ) -> tuple[Array, tuple[Metrics, Array]]:
        """Squared TD errors of the mixed utilities, this device's share."""
        online, follower, greedy = self.unrolled(params, learner, batch)
        view = batch.context.view
        q = self.joint(params, online[:-1], batch.window.action, at(view, np.s_[:-1]))
        values = self.joint(learner.target, follower, greedy, view)
        return self.regression(q, self.targets(batch, values), batch)

    def unrolled(self, params: dict, learner: Learner, batch: Batch) -> tuple[Array, Array, Array]:
        """Online and target utilities `[T+1,B,N,A]`, and the actions of the TD target."""
        start = params["agents"].torso.carry(batch.importance.shape[0], self.spec.n)
        online, _ = self.utilities(params["agents"], batch.context, start)
        follower, _ = self.utilities(learner.target["agents"], batch.context, start)
        return (
            online,
            follower,
            best_action(online if self.config.double else follower, batch.window.view.legal),
        )

    def regression(
        self, q: Array, target: Array, batch: Batch, stress: Array | float = 1.0
    ) -> tuple[Array, tuple[Metrics, Array]]:
        """Weighted squared errors; `stress` scales single errors."""
        loss, metrics, error = self.squared_errors(
            q, target, batch, stress, batch.importance[:, None]
        )
        return loss, (metrics, surprise(error, self.weight(batch)))

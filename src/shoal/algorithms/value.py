"""The value family: utilities learnt from a replay.

A member defines the mixer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import numpy as np
from jax import Array
from typing_extensions import TypeVar

from ..learning.memory import Replay
from ..learning.trees import at
from ..nets.ensembles import Ensemble, elected, optimistic
from ..nets.heads import best_action
from ..nets.layers import Rng
from ..types import Clock
from .base import Metrics, at_most, not_negative, positive
from .off_policy import Batch, Learner, OffPolicy, OffPolicyConfig, gradients, surprise
from .utilities import Utilities, Utility, UtilityConfig

# parameters, learner and batch in; a loss with metrics and the error about each window out
Losses = Callable[..., tuple[Array, tuple[Metrics, Array]]]


@dataclass(frozen=True)
class ValueConfig(UtilityConfig, OffPolicyConfig):
    """Settings every member of the family has."""

    adam_epsilon: float = OffPolicyConfig.adam_epsilon
    double: bool = True
    """Let the online net choose the target's action (double Q-learning)."""
    ensemble: int = 1
    """Utility nets of each agent (EMAX): exploring agents like what the nets disagree about, greedy
    ones take the action that most nets think best, targets are of the nets' mean."""
    uncertainty: float = 0.1
    """With ensemble: weight of the nets' deviation beside their mean while exploring."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "ensemble")
        at_most(self, 100, "ensemble")
        not_negative(self, "uncertainty")


@dataclass(frozen=True)
class MixConfig(ValueConfig):
    """The family's settings; the reward is the team's."""

    reward: Literal["mean", "sum"] = "mean"
    """The team's reward: the mean or the sum of its agents'."""


ValueConfigT = TypeVar("ValueConfigT", bound=ValueConfig, default=ValueConfig)


class Value(Utilities[ValueConfigT, Learner, Replay], OffPolicy[ValueConfigT]):
    """Base of the family; members override `mixer` and `joint`, or `losses`."""

    def agents(self, rng: Rng) -> Utility | Ensemble:
        count = self.config.ensemble
        return (
            self.utility(rng) if count == 1 else Ensemble([self.utility(rng) for _ in range(count)])
        )

    # -- acting ------------------------------------------------------------------------------------

    def best(self, q: Array, legal: Array) -> Array:
        return super().best(q, legal) if self.config.ensemble == 1 else elected(q, legal)

    def optimistic_utilities(self, q: Array) -> Array:
        return q if self.config.ensemble == 1 else optimistic(q, self.config.uncertainty)

    def mean_utilities(self, q: Array) -> Array:
        return q if self.config.ensemble == 1 else q.mean(1)

    # -- learning ----------------------------------------------------------------------------------

    def improve(
        self, learner: Learner, batch: Batch, key: Array, clock: Clock
    ) -> tuple[Learner, Metrics, Array]:
        return self.descent(self.losses, learner, batch, key, clock)

    def descent(
        self, losses: Losses, learner: Learner, batch: Batch, key: Array, clock: Clock
    ) -> tuple[Learner, Metrics, Array]:
        """A gradient step of every part on these losses."""
        if self.config.ensemble > 1:
            losses = partial(self.of_each, losses, key)
        grads, metrics, wrong = gradients(losses, learner.params, learner, batch)
        learner, norms = self.descended(learner, tuple(learner.params), grads, clock)
        return self.followed(learner), metrics | norms | {"epsilon": self.epsilon(clock)}, wrong

    def of_each(
        self, losses: Losses, key: Array, params: dict, learner: Learner, batch: Batch
    ) -> tuple[Array, tuple[Metrics, Array]]:
        """Losses of an ensemble's members, added up: each member's gradient is that of a lone net.

        Each has its own sample, with replacement, of the windows drawn (a bootstrap).
        """
        windows = batch.importance.shape[0]
        drawn = jax.random.randint(key, (self.config.ensemble, windows), 0, windows)
        times = jax.nn.one_hot(drawn, windows).sum(1)  # [K,B] how often each has a window

        def one(member: Utility, times: Array) -> tuple[Array, tuple[Metrics, Array]]:
            own = batch._replace(importance=batch.importance * times)
            return losses({**params, "agents": member}, learner, own)

        loss, aux = jax.vmap(one)(params["agents"].members, times)
        return loss.sum(), jax.tree.map(lambda x: x.mean(0), aux)

    def losses(
        self, params: dict, learner: Learner, batch: Batch
    ) -> tuple[Array, tuple[Metrics, Array]]:
        """Squared TD errors of the mixed utilities, this device's share.

        Of an ensemble, `params` hold one member.
        """
        online, follower, chooser = self.unrolled(params, learner, batch)
        view = batch.context.view
        greedy = best_action(chooser, view.legal)
        q = self.joint(params, online[:-1], batch.window.action, at(view, np.s_[:-1]))
        with jax.named_scope("target"):
            values = self.joint(learner.target, follower, greedy, view)
        return self.regression(q, self.targets(batch, values), batch)

    def unrolled(self, params: dict, learner: Learner, batch: Batch) -> tuple[Array, Array, Array]:
        """Utilities `[T+1,B,N,A]`: online, of the target networks, and those that choose the
        target's actions."""
        online = self.replayed(params["agents"], batch)
        with jax.named_scope("target"):
            follower = self.mean_utilities(self.replayed(learner.target["agents"], batch))
        if not self.config.double:
            return online, follower, follower
        if self.config.ensemble == 1:
            return online, follower, online
        return online, follower, self.mean_utilities(self.replayed(learner.params["agents"], batch))

    def replayed(self, net: Utility | Ensemble, batch: Batch) -> Array:
        """Utilities of drawn windows, which begin with an empty carry."""
        start = net.carry(batch.importance.shape[0], self.spec.n)
        return self.utilities(net, batch.context, start)[0]

    def regression(
        self, q: Array, target: Array, batch: Batch, stress: Array | float = 1.0
    ) -> tuple[Array, tuple[Metrics, Array]]:
        """Weighted squared errors; `stress` scales single errors."""
        loss, metrics, error = self.squared_errors(
            q, target, batch, stress, batch.importance[:, None]
        )
        return loss, (metrics, surprise(error, self.weight(batch)))

"""Parallelised Q-networks (PQN; Gallici et al. 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array
from typing_extensions import TypeVar

from ..learning.memory import Rollout
from ..learning.minibatches import UtilityBatch, fold_time, in_chunks
from ..learning.returns import advantages, learning_weight, pool
from ..learning.trees import at
from ..nets.heads import best_action
from ..nets.inputs import Context
from ..nets.layers import Rng
from ..types import Clock, Share, Window
from .base import Metrics
from .networked import Hidden
from .utilities import Utilities, Utility, UtilityConfig
from .windowed import Windowed, WindowedConfig


@dataclass(frozen=True)
class PQNConfig(UtilityConfig, WindowedConfig):
    """PQN's settings: those of utilities, and of passes over the window just played."""

    layer_norm: bool = True
    """Standardise the features after each hidden layer: what keeps learning stable here."""
    lam: float = 0.65
    """λ: 0 trusts the next instant's best utility alone, 1 the rewards of the whole window."""
    epochs: int = 2
    """Passes over each window."""
    minibatches: int = 4
    """Gradient steps per pass; games are split when recurrent, (game, step) rows otherwise."""


class Learner(NamedTuple):
    """No target networks: targets are of the utilities that have just played."""

    params: dict[str, Any]
    opt: dict[str, Any]
    curiosity: Any = ()  # a `Motive`, where there is one
    statistics: Any = ()  # `Statistics`, where there are some


PQNConfigT = TypeVar("PQNConfigT", bound=PQNConfig, default=PQNConfig)


class PQN(Utilities[PQNConfigT, Learner, Rollout], Windowed[PQNConfigT, Learner]):
    """DQN without replay and target network: λ-returns of the window just played, layer norm."""

    name = "pqn"
    Config = PQNConfig

    def init(self, rng: Rng) -> Learner:
        params = self.nets(rng)
        opt = {part: self.tx.init(net) for part, net in params.items()}
        return Learner(params, opt, self.init_curiosity(rng), self.init_statistics())

    def memory(self, learner: Learner, share: Share) -> Rollout:
        return Rollout(())

    def learn(
        self, learner: Learner, memory: Rollout, key: Array, clock: Clock
    ) -> tuple[Learner, Rollout, Metrics]:
        c = self.config
        batch = self.prepare(learner, self.read(learner, memory.window, clock))
        if not self.recurrent:
            batch = fold_time(batch, "carry")
        elif c.chunk:
            net = learner.params["agents"]
            start = at(batch.carry, 0)
            carry = self.chunk_carries(partial(self.after, net), batch.context, start)
            batch = in_chunks(batch._replace(carry=None), c.chunk)._replace(carry=carry)
        parts = tuple(learner.params)
        learner, metrics = self.passes(
            self.losses, parts, learner, batch, key, clock, c.epochs, c.minibatches
        )
        return learner, Rollout(()), metrics | {"epsilon": self.epsilon(clock)}

    def after(self, net: Utility, context: Context, carry: Hidden) -> Hidden:
        """The carry after these instants."""
        return self.utilities(net, context, carry)[1]

    @jax.named_scope("target")
    def prepare(self, learner: Learner, window: Window) -> UtilityBatch:
        """The window's rows, with the λ-returns of the utilities before any update."""
        context = self.instants(window)
        q, _ = self.utilities(learner.params["agents"], context, window.carry.hidden)
        greedy = best_action(q, window.view.legal)
        values = self.joint(learner.params, q, greedy, context.view)
        return UtilityBatch(
            at(context, np.s_[:-1]),
            window.action,
            learning_weight(window, self.config.reward),
            self.targets(window, values),
            at(window.carry.hidden, None),
        )

    def targets(self, window: Window, values: Array) -> Array:
        """`[T,B,N or 1]` λ-returns that bootstrap from the best values `[T+1,B,N or 1]`."""
        c = self.config
        pooled = pool(window.reward, window.discount, c.reward)
        reward, discount = self.settled(window.view, *pooled, values)
        lead = advantages(reward, discount, values, window.valid, c.gamma, c.lam)
        return lead + values[:-1]

    def losses(
        self, params: dict, learner: Learner, batch: UtilityBatch, clock: Clock
    ) -> tuple[Array, Metrics]:
        """Squared errors of the utilities of the actions taken, or of their mix."""
        q, _ = self.utilities(params["agents"], batch.context, at(batch.carry, 0))
        q = self.joint(params, q, batch.action, batch.context.view)
        loss, metrics, _ = self.squared_errors(q, batch.target, batch)
        return loss, metrics

"""Agents that learn one after another, in both actor-critic families (HARL; Zhong et al. 2024).

A turn belongs to an owner of parameters: to one agent, or to those that share an actor. A member is
its base algorithm with one of these classes beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar

import jax
import jax.numpy as jnp
from jax import Array

from ..errors import ShoalError
from ..learning.memory import Replay, Rollout
from ..learning.minibatches import Batch
from ..learning.reduce import total
from ..learning.trees import at, row, with_row
from ..nets.actor_critic import Actor
from ..nets.inputs import STATE, Context
from ..nets.layers import Rng
from ..types import Clock
from . import off_policy, on_policy
from .base import LearnerT, MemoryT, Metrics
from .networked import NetConfigT, Networked
from .off_policy import gradients
from .on_policy import OnPolicy, OnPolicyConfigT
from .pathwise import Pathwise, PathwiseConfigT


@dataclass(frozen=True)
class InTurnConfig:
    """What agents that learn in turn set otherwise: the reward is the team's, actors are own."""

    reward: Literal["mean", "sum"] = "mean"
    """The team's reward: the mean or the sum of its agents'."""
    sharing: str = "own"
    """Parameters of the actors: own for each agent, shared by all, or a partition such as 0,0,1;
    agents that share theirs take their turn together."""


State = TypeVar("State")


class InTurn(Networked[NetConfigT, LearnerT, MemoryT]):
    """Turns of the owners; all parts but the critic have leaves `[G,…]`, one row per owner."""

    def init(self, rng: Rng) -> LearnerT:
        """The learner; each owner's row has an optimiser of its own."""
        learner: Any = super().init(rng)
        rows = {part: net for part, net in learner.params.items() if part != "critic"}
        if any(leaf.shape[:1] != (max(self.owner) + 1,) for leaf in jax.tree.leaves(rows)):
            raise ShoalError(
                f"{self.name} trains one agent at a time, but {self.config.torso!r} has parameters"
                " without an axis of owners: choose another torso"
            )
        own = {part: jax.vmap(self.tx.init)(net) for part, net in rows.items()}
        return learner._replace(opt=learner.opt | own)

    def in_turn(self, turn: Callable, state: State, key: Array) -> tuple[State, Any]:
        """Give every owner a turn, `turn(state, owner)`, in an order drawn anew."""
        draw = jax.random.uniform(jax.random.fold_in(key, 0), (max(self.owner) + 1,))
        order = jnp.argsort(total(draw))  # summed, so that all devices use the same order
        return jax.lax.scan(turn, state, order)

    def own(self, owner: Array) -> Array:
        """`[N]` bool: agents of an owner."""
        return jnp.asarray(self.owner) == owner

    def rows_of(self, learner: LearnerT, owner: Array) -> LearnerT:
        """The learner reduced to an owner's rows."""
        whole: Any = learner
        rows = {part: net for part, net in whole.params.items() if part != "critic"}
        params, opt = row((rows, {part: whole.opt[part] for part in rows}), owner)
        return whole._replace(params=params, opt=opt)

    def with_rows(self, learner: LearnerT, owner: Array, alone: Any) -> LearnerT:
        """The whole learner, with an owner's rows as they are now."""
        whole: Any = learner
        params = {
            part: with_row(whole.params[part], owner, alone.params[part]) for part in alone.opt
        }
        opt = {part: with_row(whole.opt[part], owner, new) for part, new in alone.opt.items()}
        return whole._replace(params=whole.params | params, opt=whole.opt | opt)


class PolicyInTurn(InTurn[OnPolicyConfigT, on_policy.Learner, Rollout], OnPolicy[OnPolicyConfigT]):
    """The policy family in turn: one central critic for the team (Kuba et al. 2022, alg. 4).

    An agent's advantage is the team's, times the probability ratios (new to acting policy) of all
    agents that learnt before it.
    """

    critic_sees = (STATE,)

    @property
    def critic_owner(self) -> tuple[int, ...]:
        """The team shares one critic."""
        return (0,) * self.spec.n

    def improve(
        self, learner: on_policy.Learner, batch: Batch, key: Array, clock: Clock
    ) -> tuple[on_policy.Learner, Metrics]:
        """Let every owner learn in random order, then the critic."""
        c = self.config
        factor = jnp.ones((*batch.weight.shape[:2], 1))
        turn = partial(self.turn, batch, key, clock)
        (learner, _), metrics = self.in_turn(turn, (learner, factor), key)
        learner, more = self.passes(
            self.critic_alone, ("critic",), learner, batch, key, clock, c.epochs, c.minibatches
        )
        return learner, jax.tree.map(jnp.mean, metrics) | more

    def turn(
        self,
        batch: Batch,
        key: Array,
        clock: Clock,
        state: tuple[on_policy.Learner, Array],
        owner: Array,
    ) -> tuple[tuple[on_policy.Learner, Array], Metrics]:
        """One owner learns; `factor [T,B,1]` is the product of all ratios so far."""
        learner, factor = state
        batch = batch._replace(
            weight=batch.weight * self.own(owner), advantage=batch.advantage * factor
        )
        learner, metrics = self.study(learner, owner, batch, key, clock)
        actors = learner.params["actor"]
        dist, _, _ = self.policy(actors, batch.context, at(batch.actor_carry, 0), clock)
        factor = factor * jnp.exp(self.log_ratio(dist, batch).sum(-1, keepdims=True))
        return (learner, factor), metrics

    def study(
        self, learner: on_policy.Learner, owner: Array, batch: Batch, key: Array, clock: Clock
    ) -> tuple[on_policy.Learner, Metrics]:
        """An owner's gradient steps; `batch` has weights of its agents alone."""
        c = self.config
        losses = partial(self.actor_alone, learner.params["actor"], owner)
        alone, metrics = self.passes(
            losses,
            ("actor",),
            self.rows_of(learner, owner),
            batch,
            key,
            clock,
            c.epochs,
            c.minibatches,
        )
        return self.with_rows(learner, owner, alone), metrics

    def actor_alone(
        self, actors: Actor, owner: Array, rows: dict, _: Any, batch: Batch, clock: Clock
    ) -> tuple[Array, Metrics]:
        """The actor's loss, as a function of one owner's parameters."""
        actors = with_row(actors, owner, rows["actor"])
        loss, _features, metrics = self.actor_losses(actors, batch, clock)
        return loss, metrics


class PathwiseInTurn(
    InTurn[PathwiseConfigT, off_policy.Learner, Replay], Pathwise[PathwiseConfigT]
):
    """The pathwise family in turn: central critics of the joint action.

    In it every agent acts by its present policy, and those that learnt before by their new one.
    """

    central = True

    def actor_step(
        self, learner: off_policy.Learner, batch: off_policy.Batch, key: Array, clock: Clock
    ) -> tuple[off_policy.Learner, Metrics]:
        """Every owner's step, in random order; metrics are of the whole team."""
        turn = partial(self.turn, batch, key, clock)
        learner, (metrics, norms) = self.in_turn(turn, learner, key)
        return learner, jax.tree.map(jnp.sum, metrics) | jax.tree.map(jnp.mean, norms)

    def turn(
        self,
        batch: off_policy.Batch,
        key: Array,
        clock: Clock,
        learner: off_policy.Learner,
        owner: Array,
    ) -> tuple[off_policy.Learner, tuple[Metrics, Metrics]]:
        """One owner's step, weighed as its agents are in the team's loss."""
        batch = batch._replace(actor_weight=batch.actor_weight * self.own(owner))
        alone = self.rows_of(learner, owner)
        losses = partial(self.actor_alone, owner)
        grads, metrics, _ = gradients(losses, alone.params, learner, batch, key)
        alone, norms = self.descended(alone, tuple(alone.params), grads, clock)
        return self.with_rows(learner, owner, alone), (metrics, norms)

    def actor_alone(
        self,
        owner: Array,
        rows: dict,
        learner: off_policy.Learner,
        batch: off_policy.Batch,
        key: Array,
    ) -> tuple[Array, tuple[Metrics, Array]]:
        """The actor's loss, as a function of one owner's parameters."""
        parts = {part: with_row(learner.params[part], owner, new) for part, new in rows.items()}
        return self.actor_loss(parts, learner, batch, key)

    def with_own_actions(self, context: Context, own: Array) -> Context:
        """The joint action in which all act by their present policies."""
        return context._replace(action=self.acted(own, context.view))

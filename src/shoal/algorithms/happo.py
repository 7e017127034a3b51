"""Heterogeneous-agent PPO (HAPPO; Kuba et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jax import Array

from ..errors import ShoalError
from ..learning.minibatches import Batch
from ..learning.reduce import total
from ..learning.trees import at, row, with_row
from ..nets.actor_critic import Actor
from ..nets.inputs import STATE
from ..nets.layers import Rng
from ..types import Clock
from .base import Metrics
from .on_policy import Learner
from .ppo import PPO, PPOConfig


@dataclass(frozen=True)
class HAPPOConfig(PPOConfig):
    """PPO's settings; the reward is the team's, and every agent has its own actor."""

    reward: Literal["mean", "sum"] = "mean"
    """The team's reward: the mean or the sum of its agents'."""
    sharing: str = "own"
    """Parameters of the actors: own for each agent, shared by all, or a partition such as 0,0,1;
    agents that share theirs take their turn together."""


class HAPPO(PPO):
    """PPO whose agents learn one after another, while the others stand still.

    An agent's advantage is the team's, times the probability ratios (new to acting policy) of all
    agents that learnt before it.
    """

    name = "happo"
    Config = HAPPOConfig
    critic_sees = (STATE,)

    @property
    def critic_owner(self) -> tuple[int, ...]:
        """The team shares one critic."""
        return (0,) * self.spec.n

    def init(self, rng: Rng) -> Learner:
        """The learner; actors and their optimisers have leaves `[G,…]`, one row per owner."""
        learner = super().init(rng)
        actor = learner.params["actor"]
        if any(leaf.shape[:1] != (max(self.owner) + 1,) for leaf in jax.tree.leaves(actor)):
            raise ShoalError(
                f"{self.name} trains one agent at a time, but {self.config.torso!r} has parameters"
                " without an axis of owners: choose another torso"
            )
        return learner._replace(opt=learner.opt | {"actor": jax.vmap(self.tx.init)(actor)})

    def improve(
        self, learner: Learner, batch: Batch, key: Array, clock: Clock
    ) -> tuple[Learner, Metrics]:
        """Let every owner learn in random order, then the critic."""
        c = self.config
        draw = jax.random.uniform(jax.random.fold_in(key, 0), (max(self.owner) + 1,))
        order = jnp.argsort(total(draw))  # summed, so that all devices use the same order
        factor = jnp.ones((*batch.weight.shape[:2], 1))
        turn = partial(self.turn, batch, key, clock)
        (learner, _), metrics = jax.lax.scan(turn, (learner, factor), order)
        learner, more = self.passes(
            self.critic_alone, ("critic",), learner, batch, key, clock, c.epochs, c.minibatches
        )
        return learner, jax.tree.map(jnp.mean, metrics) | more

    def turn(
        self, batch: Batch, key: Array, clock: Clock, state: tuple[Learner, Array], owner: Array
    ) -> tuple[tuple[Learner, Array], Metrics]:
        """One owner's passes; `factor [T,B,1]` is the product of all ratios so far."""
        c = self.config
        learner, factor = state
        actors = learner.params["actor"]
        own = jnp.asarray(self.owner) == owner
        batch = batch._replace(weight=batch.weight * own, advantage=batch.advantage * factor)
        params, opt = row((actors, learner.opt["actor"]), owner)
        alone = learner._replace(params={"actor": params}, opt={"actor": opt})
        losses = partial(self.actor_alone, actors, owner)
        alone, metrics = self.passes(
            losses, ("actor",), alone, batch, key, clock, c.epochs, c.minibatches
        )
        actors = with_row(actors, owner, alone.params["actor"])
        opt = with_row(learner.opt["actor"], owner, alone.opt["actor"])
        dist, _, _ = self.policy(actors, batch.context, at(batch.actor_carry, 0), clock)
        factor = factor * jnp.exp(self.log_ratio(dist, batch).sum(-1, keepdims=True))
        learner = learner._replace(
            params=learner.params | {"actor": actors}, opt=learner.opt | {"actor": opt}
        )
        return (learner, factor), metrics

    def actor_alone(
        self, actors: Actor, owner: Array, params: dict, _: Learner, batch: Batch, clock: Clock
    ) -> tuple[Array, Metrics]:
        """The actor's loss, as a function of one owner's parameters."""
        actors = with_row(actors, owner, params["actor"])
        loss, _features, metrics = self.actor_losses(actors, batch, clock)
        return loss, metrics

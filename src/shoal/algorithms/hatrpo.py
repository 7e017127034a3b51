"""Heterogeneous-agent TRPO (HATRPO; Kuba et al. 2022)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from ..learning.minibatches import Batch
from ..learning.optim import annealed
from ..learning.reduce import mean_weights, total
from ..learning.trees import at, row, with_row
from ..learning.trust_region import line_search, natural_step
from ..nets.actor_critic import Actor
from ..nets.layers import Rng
from ..types import Clock
from .base import Metrics, fraction, not_negative, positive
from .learning_in_turn import InTurnConfig, PolicyInTurn
from .on_policy import Learner
from .on_policy_config import OnPolicyConfig


@dataclass(frozen=True)
class HATRPOConfig(InTurnConfig, OnPolicyConfig):
    """The trust region's settings; the reward is the team's, and every agent has its own actor."""

    lr: float = 5e-4
    """Learning rate of the critic's Adam; actors have a trust region instead."""
    anneal: bool = True
    """Let the learning rate and the trust region fall linearly to 0 over the run."""
    epochs: int = 4
    """The critic's passes over each window; an actor takes one step on all of it."""
    minibatches: int = 4
    """Gradient steps per pass; games are split when recurrent, (game, step) rows otherwise."""
    entropy: float = 0.0
    """Weight of the entropy bonus."""
    max_kl: float = 0.01
    """The trust region: the largest mean KL divergence of an agent's new policy from its old."""
    rounds: int = 10
    """Rounds of conjugate gradient that look for the natural gradient."""
    damping: float = 0.1
    """Added to the diagonal of the KL's Hessian."""
    tries: int = 10
    """Tries of the line search; if none is accepted, the agent stays as it is."""
    backtrack: float = 0.8
    """The factor by which a step shrinks from try to try."""
    accept: float = 0.5
    """The share of the gain promised by the gradient that a step must bring."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "max_kl", "rounds", "tries", "backtrack")
        not_negative(self, "damping")
        fraction(self, "backtrack", "accept")


class HATRPO(PolicyInTurn[HATRPOConfig]):
    """Agents learn one after another, each by a natural gradient step within a trust region."""

    name = "hatrpo"
    Config = HATRPOConfig

    def init(self, rng: Rng) -> Learner:
        learner = super().init(rng)
        return learner._replace(opt={"critic": learner.opt["critic"]})  # actors need no Adam

    def actor_loss(self, dist: Any, batch: Batch) -> tuple[Array, Metrics]:
        """−ratio · A, unclipped."""
        return -(jnp.exp(self.log_ratio(dist, batch)) * batch.advantage * batch.weight).sum(), {}

    def study(
        self, learner: Learner, owner: Array, batch: Batch, key: Array, clock: Clock
    ) -> tuple[Learner, Metrics]:
        """An owner's step on the whole window: natural gradient, then line search."""
        c = self.config
        batch = batch._replace(weight=mean_weights(batch.weight))
        actors = learner.params["actor"]
        rows = row(actors, owner)
        losses = partial(self.actor_alone, actors, owner)
        slope = jax.value_and_grad(losses, has_aux=True)
        (loss, metrics), grad = total(slope({"actor": rows}, learner, batch, clock))
        grad = jax.tree.map(jnp.negative, grad["actor"])
        old, _, _ = self.policy(actors, batch.context, at(batch.actor_carry, 0), clock)
        kl = partial(self.mean_kl, old, actors, owner, batch, clock)
        bound = annealed(c.max_kl, c.anneal, clock.progress)
        step = natural_step(grad, partial(self.hessian_product, kl, rows), bound, c.rounds)
        promise: Any = optax.tree.vdot(grad, step)

        def measure(rows: Actor) -> tuple[Array, Array]:
            now, _ = losses({"actor": rows}, learner, batch, clock)
            now, away = total((now, kl(rows)))
            return loss - now, away

        new, taken = line_search(
            measure, rows, step, promise, bound, c.tries, c.backtrack, c.accept
        )
        metrics |= {"kl": total(kl(new)), "step": taken, "actor_grad_norm": optax.tree.norm(grad)}
        params = learner.params | {"actor": with_row(actors, owner, new)}
        return learner._replace(params=params), metrics

    def mean_kl(
        self, old: Any, actors: Actor, owner: Array, batch: Batch, clock: Clock, rows: Actor
    ) -> Array:
        """Mean KL of an owner's new policies from the `old`, this device's share."""
        actors = with_row(actors, owner, rows)
        new, _, _ = self.policy(actors, batch.context, at(batch.actor_carry, 0), clock)
        return (old.kl(new) * batch.weight).sum()

    def hessian_product(self, kl: Any, rows: Actor, direction: Actor) -> Actor:
        """The product of the damped Hessian of `kl` at `rows` and a direction."""
        _, product = jax.jvp(jax.grad(kl), (rows,), (direction,))
        damping = self.config.damping
        return jax.tree.map(lambda x, v: x + damping * v, total(product), direction)

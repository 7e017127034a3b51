"""Counterfactual multi-agent policy gradients (COMA; Foerster et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from ..learning.exploration import floored, linear
from ..learning.memory import Rollout
from ..learning.minibatches import Batch
from ..learning.optim import follow
from ..learning.reduce import moments
from ..learning.trees import at
from ..nets.actor_critic import Actor, Critic
from ..nets.distributions import Categorical, pick
from ..nets.inputs import ID, OBS, OTHERS_ACTION, STATE, Context, as_input
from ..nets.layers import Dense, Rng
from ..nets.mlp import Parts
from ..types import Clock, Discrete
from .base import Metrics, fraction, not_negative, positive
from .networked import Hidden
from .on_policy import Learner, OnPolicy
from .on_policy_config import OnPolicyConfig


@dataclass(frozen=True)
class COMAConfig(OnPolicyConfig):
    """COMA's own settings beside the family's."""

    lam: float = 0.8
    """λ of the critic's TD(λ) targets."""
    reward: Literal["own", "mean", "sum"] = "mean"
    """What each agent learns from: its own reward, or the team's pooled by mean or sum."""
    action_value: Literal["critic", "return"] = "critic"
    """What the action taken is worth in the advantage: the critic's Q as in the paper, or the
    λ-return, which the critic does not bias."""
    normalise_advantage: bool = True
    """Divide the advantages of each gradient step by their deviation + 1e-8; their mean is left as
    it is."""
    critic_epochs: int = 4
    """Passes of the critic over each window before the actor's."""
    critic_minibatches: int = 4
    """Gradient steps per such pass."""
    tau: float = 0.05
    """How far the target critic moves towards the critic after each gradient step."""
    epsilon: float = 0.1
    """Probability spread evenly over the legal actions, at the start."""
    epsilon_end: float = 0.01
    """That probability, at the end of its schedule."""
    epsilon_steps: float = 500_000
    """Environment steps over which it falls."""

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative(self, "critic_epochs")
        positive(self, "epsilon_steps")
        fraction(self, "tau", "epsilon", "epsilon_end")


class DuelingCritic(eqx.Module):
    """Q from two nets: a value, and advantages centred on their mean (Wang et al. 2016).

    The value's error is the same for every action and would drown the advantages in one net.
    """

    value: Critic
    advantage: Critic

    @property
    def torso(self) -> Any:
        return self.value.torso

    def __call__(self, parts: Parts, carry: Hidden, first: Array) -> tuple[Array, Hidden]:
        value, carry = self.value(parts, carry, first)
        advantage, _ = self.advantage(parts, carry, first)
        return value + advantage - advantage.mean(-1, keepdims=True), carry

    def rescaled(self, ratio: Array, shift: Array) -> DuelingCritic:
        """Outputs times `ratio`, plus `shift`."""
        value = self.value.rescaled(ratio, shift)
        return DuelingCritic(value, self.advantage.rescaled(ratio, 0.0))


class COMA(OnPolicy[COMAConfig]):
    """One critic over an agent's own actions, given the others'; its policy's expectation is the
    baseline (eq. 4)."""

    name = "coma"
    Config = COMAConfig
    spaces = (Discrete,)
    epochs = ("epochs", "critic_epochs")
    minibatches = ("minibatches", "critic_minibatches")
    critic_sees = (STATE, OBS, OTHERS_ACTION, ID)

    def init_critic(self, rng: Rng) -> DuelingCritic:
        """A feed-forward critic on the state, as in the paper; only the actor may be recurrent."""
        outs = {"value": 1, "advantage": self.spec.action.size}
        critics = {
            name: Critic(
                self.torso(rng, "critic", "mlp"),
                Dense(rng, self.owner, self.config.hidden, size, gain=0.01),
            )
            for name, size in outs.items()
        }
        return DuelingCritic(**critics)

    def init_target(self, critic: Any) -> DuelingCritic:
        return jax.tree.map(jnp.copy, critic)

    def policy(
        self, actor: Actor, context: Context, carry: Hidden, clock: Clock
    ) -> tuple[Categorical, Array, Hidden]:
        """The policy with its exploration floor, both when acting and when learning."""
        dist, features, carry = super().policy(actor, context, carry, clock)
        return floored(dist, context.view.legal, self.epsilon(clock)), features, carry

    def epsilon(self, clock: Clock) -> Array:
        c = self.config
        return linear(c.epsilon, c.epsilon_end, c.epsilon_steps, clock.steps)

    def learn(
        self, learner: Learner, memory: Rollout, key: Array, clock: Clock
    ) -> tuple[Learner, Rollout, Metrics]:
        learner, memory, metrics = super().learn(learner, memory, key, clock)
        return learner, memory, metrics | {"epsilon": self.epsilon(clock)}

    def regress(
        self,
        learner: Learner,
        context: Context,
        end: Context,
        memory: Rollout,
        key: Array,
        clock: Clock,
    ) -> tuple[Array, Hidden]:
        """Target Q of the actions taken; at instant T, not acted on yet, of actions sampled now."""
        dist, _, _ = self.policy(
            learner.params["actor"], end, memory.window.carry_end.hidden, clock
        )
        before, carry = self.critic(learner.target, context, memory.carry)
        action = self.acted(as_input(dist.sample(key), self.spec), end.view)
        last, _ = self.critic(learner.target, end._replace(action=action), carry)
        values = jnp.concatenate([pick(before, memory.window.action), expectation(dist, last)])
        return (learner.scale.up(values) if self.config.normalise_value else values), carry

    def critic_first(self, learner: Learner, batch: Batch, key: Array, clock: Clock) -> Learner:
        """Train the critic in several passes before its advantages train the actor."""
        epochs = self.config.critic_epochs
        minibatches = self.config.critic_minibatches
        alone = self.critic_alone, ("critic",)
        return self.passes(*alone, learner, batch, key, clock, epochs, minibatches)[0]

    def critic_alone(
        self, params: dict, learner: Learner, batch: Batch, clock: Clock
    ) -> tuple[Array, Metrics]:
        q, _ = self.critic(params["critic"], batch.context, at(batch.critic_carry, 0))
        loss = self.critic_loss(pick(q, batch.record.raw), learner, batch)
        return self.config.value_weight * loss, {}

    def losses(
        self, params: dict, learner: Learner, batch: Batch, clock: Clock
    ) -> tuple[Array, Metrics]:
        dist, _, _ = self.policy(params["actor"], batch.context, at(batch.actor_carry, 0), clock)
        q, _ = self.critic(params["critic"], batch.context, at(batch.critic_carry, 0))
        taken = pick(q, batch.record.raw)
        critic = self.critic_loss(taken, learner, batch)
        worth = taken if self.config.action_value == "critic" else self.unit(learner, batch.target)
        advantage = jax.lax.stop_gradient(worth - expectation(dist, q))
        if self.config.normalise_advantage:
            advantage = advantage / (jnp.sqrt(moments(advantage, batch.weight)[1]) + 1e-8)
        elif self.config.normalise_value:  # from the critic's unit to that of rewards
            advantage = advantage * learner.scale.deviation
        actor, metrics = self.actor_loss(dist, batch._replace(advantage=advantage))
        entropy = (dist.entropy() * batch.weight).sum()
        metrics |= {"actor_loss": actor, "critic_loss": critic, "entropy": entropy}
        loss = actor - self.entropy_weight(clock) * entropy + self.config.value_weight * critic
        return loss, metrics

    def updated(self, learner: Learner) -> Learner:
        return learner._replace(
            target=follow(learner.target, learner.params["critic"], self.config.tau)
        )


def expectation(dist: Any, q: Array) -> Array:
    """Σ π(a) Q(a): expected Q under the policy."""
    return (jnp.exp(dist.log_probs) * q).sum(-1)

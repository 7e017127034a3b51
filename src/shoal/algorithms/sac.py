"""Soft actor-critic (SAC; Haarnoja et al. 2018); discrete actions by expectation (Christodoulou
2019)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ..nets.distributions import Categorical, Gaussian, pick
from ..nets.heads import CategoricalHead, SquashedHead, dueling
from ..nets.inputs import OTHERS_ACTION, Context, InputPart
from ..nets.layers import Rng, owners
from ..types import Box, Clock, Discrete, Spec
from .base import Metrics, not_negative, positive
from .off_policy import Batch, Learner
from .pathwise import Critic, Pathwise, PathwiseConfig


@dataclass(frozen=True)
class SACConfig(PathwiseConfig):
    """SAC's own settings beside the family's."""

    alpha: float = 0.1
    """Temperature: weight of the entropy, at the start."""
    alpha_lr: float = 3e-4
    """Learning rate of the temperature; 0 keeps it as it is."""
    alpha_sharing: str = "shared"
    """Temperatures: one shared by all agents, own for each, or a partition such as 0,0,1; empty
    takes the actors'."""
    entropy: float = 0.2
    """Discrete actions: entropy that the temperature aims at, as a share of the uniform
    policy's."""
    entropy_per_dimension: float = -1.0
    """Continuous actions: entropy that the temperature aims at, per dimension, with the bounds at
    -1 and 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "alpha")
        not_negative(self, "alpha_lr")


class SAC(Pathwise[SACConfig]):
    """A stochastic actor climbs the lower of two Q plus its own entropy, weighed by a temperature
    that is learnt."""

    name = "sac"
    Config = SACConfig

    def __init__(self, config: SACConfig, spec: Spec):
        super().__init__(config, spec)
        self.alpha_owner = owners(config.alpha_sharing or config.sharing, spec)

    @property
    def twins(self) -> int:
        return 2

    @property
    def discrete(self) -> bool:
        return isinstance(self.spec.action, Discrete)

    @property
    def outs(self) -> int:
        """Discrete: one dueling output for each own action."""
        return self.spec.action.size + 1 if self.discrete else 1

    @property
    def acted_sees(self) -> tuple[InputPart, ...]:
        """Discrete: a critic sees only the others' actions, as it answers for each own one."""
        if self.discrete:
            return (OTHERS_ACTION,) if self.central else ()
        return super().acted_sees

    def nets(self, rng: Rng) -> dict[str, Any]:
        shape = () if self.config.alpha_sharing == "shared" else (max(self.alpha_owner) + 1,)
        return super().nets(rng) | {
            "alpha": jnp.full(shape, jnp.log(jnp.float32(self.config.alpha)))
        }

    def follows(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"critic": params["critic"]}

    def rate(self, part: str) -> float:
        return self.config.alpha_lr if part == "alpha" else super().rate(part)

    def head(self, rng: Rng) -> Any:
        space = self.spec.action
        if isinstance(space, Box):
            return SquashedHead(rng, self.owner, self.config.hidden, space)
        return CategoricalHead(rng, self.owner, self.config.hidden, space)

    def greedy(self, policy: Any) -> Array:
        return self.unit(policy, policy.mode())

    def explore(self, policy: Any, key: Array, legal: Array, clock: Clock) -> Array:
        """Sample from the policy; before learning begins it is nearly uniform."""
        return self.unit(policy, policy.sample(key))

    def unit(self, policy: Categorical | Gaussian, raw: Array) -> Array:
        """Encode a raw sample as nets read it."""
        if isinstance(policy, Categorical):
            return jax.nn.one_hot(raw, self.spec.action.size)
        return policy.action(raw) * policy.used

    def q(self, critics: tuple[Critic, ...], context: Context) -> list[Array]:
        outs = super().q(critics, context)
        return [dueling(out, context.view.legal) for out in outs] if self.discrete else outs

    def next_values(
        self, learner: Learner, context: Context, rivals: Array | None, key: Array
    ) -> Array:
        """min Q + α·entropy of the current policies."""
        policy, raw = self.drawn(learner, context, key)
        bonus = self.bonus(learner, context, key)
        context = context._replace(
            action=self.acted(self.unit(policy, raw), context.view), rivals=rivals
        )
        q = jnp.stack(self.q(learner.target["critic"], context)).min(0)
        return ((jnp.exp(policy.log_probs) * q).sum(-1) if self.discrete else q[..., 0]) + bonus

    def bonus(self, learner: Learner, context: Context, key: Array) -> Array:
        """α·entropy of living agents; for continuous actions −α log π of a sample.

        A team critic counts the sum over all agents.
        """
        policy, raw = self.drawn(learner, context, key)
        entropy = policy.entropy() if self.discrete else -policy.log_prob(raw)
        bonus = jnp.exp(self.log_alpha(learner.params)) * entropy * context.view.alive
        return bonus.sum(-1, keepdims=True) if self.team_critic else bonus

    def log_alpha(self, params: dict[str, Any]) -> Array:
        """`[]` log of the temperature, or `[N]` each agent's."""
        alpha = params["alpha"]
        return jnp.take(alpha, jnp.asarray(self.alpha_owner)) if alpha.ndim else alpha

    def drawn(self, learner: Learner, context: Context, key: Array) -> tuple[Any, Array]:
        """The current policy at every instant, and a sample from it."""
        actor = learner.params["actor"]
        policy, _ = self.policy(actor, context, self.start(actor, context))
        return policy, policy.sample(key)

    def q_taken(self, q: Array, batch: Batch) -> Array:
        return pick(q, batch.window.action) if self.discrete else super().q_taken(q, batch)

    def actor_loss(
        self, params: dict, learner: Learner, batch: Batch, key: Array
    ) -> tuple[Array, tuple[Metrics, Array]]:
        """Loss of the actor, α·log π − min Q, plus that of α, log α·(entropy − target entropy)."""
        context = self.played(batch, batch.window.rivals)
        actor = params["actor"]
        weight = batch.actor_weight
        policy, _ = self.policy(actor, context, self.start(actor, context))
        log_alpha = self.log_alpha(params)
        alpha = jnp.exp(jax.lax.stop_gradient(log_alpha))
        critics = learner.params["critic"]
        raw = policy.sample(key)
        tried = self.with_own_actions(context, self.unit(policy, raw))
        q = jnp.stack(self.q(critics, tried)).min(0)
        if self.discrete:
            loss = (jnp.exp(policy.log_probs) * (alpha[..., None] * policy.log_probs - q)).sum(-1)
            entropy = policy.entropy()
            aim = self.config.entropy * jnp.log(context.view.legal.sum(-1).clip(1))
        else:
            log_prob = policy.log_prob(raw)
            loss = alpha * log_prob - q[..., 0]
            entropy = -log_prob
            aim = self.config.entropy_per_dimension * policy.used.sum(-1)
        actor_loss = (loss * weight).sum()
        gap = jax.lax.stop_gradient(entropy - aim) * weight
        metrics = {
            "actor_loss": actor_loss,
            "entropy": (entropy * weight).sum(),
            "alpha": (alpha * weight).sum(),
        }
        return actor_loss + (log_alpha * gap).sum(), (metrics, jnp.zeros(()))

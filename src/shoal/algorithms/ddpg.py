"""Deep deterministic policy gradient (DDPG; Lillicrap et al. 2016); discrete actions by
Gumbel-softmax."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ..learning.exploration import linear
from ..learning.memory import Drawn, Replay
from ..nets.distributions import Deterministic, uniform
from ..nets.ensembles import Ensemble, member
from ..nets.heads import DeterministicHead
from ..nets.inputs import Context
from ..nets.layers import Rng
from ..types import Box, Clock, Decision, Share, View
from .base import Metrics, at_most, fraction, not_negative, positive
from .networked import Carry, Hidden
from .off_policy import Batch, Learner, step_if
from .pathwise import Pathwise, PathwiseConfig


@dataclass(frozen=True)
class DDPGConfig(PathwiseConfig):
    """DDPG's own settings beside the family's."""

    noise: float = 0.3
    """Continuous actions: deviation of the exploring noise at the start, in units of half the
    range."""
    noise_end: float = 0.05
    """That deviation, at the end of its schedule."""
    noise_steps: float = 500_000
    """Environment steps over which it falls."""
    epsilon: float = 0.0
    """Probability of any legal action instead, all along: noise for discrete actions beside
    Gumbel's."""
    temperature: float = 1.0
    """Discrete actions: temperature of the Gumbel-softmax that the actor learns through."""
    penalty: float = 1e-3
    """Weight of the squared logits (discrete) or of what tanh squashes (continuous): keeps policies
    from saturating."""
    policies: int = 1
    """Policies of each agent (MADDPG's policy ensembles): one is drawn for every episode, and
    learns from what it played itself."""
    twin: bool = False
    """Two critics, of which the lower makes the target (TD3)."""
    delay: int = 1
    """Steps of the critic for each of the actor's (TD3)."""
    smoothing: float = 0.0
    """Continuous actions: deviation of the noise on the target's actions, clipped at 2.5 times that
    (TD3)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "noise_steps", "temperature", "delay", "policies")
        at_most(self, 100, "policies")
        not_negative(self, "noise", "noise_end", "penalty", "smoothing")
        fraction(self, "epsilon")


class DDPG(Pathwise[DDPGConfig]):
    """A deterministic actor climbs Q; noise explores."""

    name = "ddpg"
    Config = DDPGConfig

    @property
    def twins(self) -> int:
        return 1 + self.config.twin

    def actor(self, rng: Rng) -> Any:
        count = self.config.policies
        make = super().actor
        return make(rng) if count == 1 else Ensemble([make(rng) for _ in range(count)])

    def head(self, rng: Rng) -> DeterministicHead:
        return DeterministicHead(rng, self.owner, self.config.hidden, self.spec.action)

    # -- policy ensembles (Lowe et al. 2017, §4.3) -------------------------------------------------
    # With several policies the carry's `hidden` is what all remember, and which one is played.

    def carry(self, learner: Learner, games: int) -> Carry:
        carry = super().carry(learner, games)
        if self.config.policies == 1:
            return carry
        return carry._replace(hidden=(carry.hidden, jnp.zeros((games, self.spec.n), jnp.int32)))

    def act(
        self, learner: Learner, key: Array, view: View, carry: Carry, clock: Clock, greedy: bool
    ) -> Decision:
        """Act; at an opening, each agent draws the policy that it plays in this episode."""
        if self.config.policies == 1:
            return super().act(learner, key, view, carry, clock, greedy)
        key, key_which = jax.random.split(key)
        hidden, which = carry.hidden
        drawn = (jax.random.uniform(key_which, which.shape) * self.config.policies).astype(
            jnp.int32
        )
        which = jnp.where(view.first[:, None], drawn, which)
        carry = carry._replace(hidden=(hidden, which))
        decision = super().act(learner, key, view, carry, clock, greedy)
        return decision._replace(record=which)

    def policy(self, actor: Any, context: Context, carry: Hidden) -> tuple[Any, Hidden]:
        if self.config.policies == 1:
            return super().policy(actor, context, carry)
        hidden, which = carry  # [B,N] while acting, [T,B,N] in windows
        every, hidden = super().policy(actor, context, hidden)
        return jax.tree.map(partial(member, which), every), (hidden, which)

    def start(self, actor: Any, context: Context) -> Hidden:
        start = super().start(actor, context)
        return start if self.config.policies == 1 else (start, context.which)

    def memory(self, learner: Learner, share: Share) -> Replay:
        """The replay; with several policies it also keeps which one was played."""
        memory = super().memory(learner, share)
        if self.config.policies == 1:
            return memory
        which = jnp.zeros(memory.ring.view.alive.shape, jnp.int32)
        return memory._replace(ring=memory.ring._replace(record=which))

    def batch(self, drawn: Drawn) -> Batch:
        batch = super().batch(drawn)
        if self.config.policies == 1:
            return batch
        which = batch.window.record
        # the last instant is of the episode before it, or counts nothing
        which = jnp.concatenate([which, which[-1:]])
        return batch._replace(context=batch.context._replace(which=which))

    # -- acting ------------------------------------------------------------------------------------

    def greedy(self, policy: Any) -> Array:
        return policy.mode()

    def explore(self, policy: Any, key: Array, legal: Array, clock: Clock) -> Array:
        """Add noise to the policy; act at random before learning, and with probability ε."""
        key_noise, key_any, key_whether = jax.random.split(key, 3)
        tried = policy.explore(key_noise, self.noise(clock))
        chance = jnp.where(clock.steps < self.config.warmup, 1.0, self.config.epsilon)
        if isinstance(self.spec.action, Box):
            anything = jax.random.uniform(key_any, tried.shape, minval=-1.0) * policy.legal
        else:
            anything = jax.nn.one_hot(uniform(legal).sample(key_any), self.spec.action.size)
        return jnp.where(
            jax.random.uniform(key_whether, (*tried.shape[:-1], 1)) < chance, anything, tried
        )

    def noise(self, clock: Clock) -> Array:
        c = self.config
        return linear(c.noise, c.noise_end, c.noise_steps, clock.steps)

    # -- learning ----------------------------------------------------------------------------------

    def improve(
        self, learner: Learner, batch: Batch, key: Array, clock: Clock
    ) -> tuple[Learner, Metrics, Array]:
        learner, metrics, wrong = super().improve(learner, batch, key, clock)
        noise = {"noise": self.noise(clock)} if isinstance(self.spec.action, Box) else {}
        return learner, metrics | noise | {"epsilon": jnp.float32(self.config.epsilon)}, wrong

    def next_values(
        self, learner: Learner, context: Context, rivals: Array | None, key: Array
    ) -> Array:
        """Target Q of the target policies' best actions, smoothed if the config says so."""
        actor = learner.target["actor"]
        policy, _ = self.policy(actor, context, self.start(actor, context))
        action = policy.mode()
        if isinstance(policy, Deterministic) and self.config.smoothing:
            sway = self.config.smoothing * jnp.clip(jax.random.normal(key, action.shape), -2.5, 2.5)
            action = jnp.clip(action + sway, -1.0, 1.0) * policy.legal
        context = context._replace(action=self.acted(action, context.view), rivals=rivals)
        return jnp.stack(self.q(learner.target["critic"], context)).min(0)[..., 0]

    def actor_step(
        self, learner: Learner, batch: Batch, key: Array, clock: Clock
    ) -> tuple[Learner, Metrics]:
        """Update the actor only every `delay` steps."""
        if self.config.delay == 1:
            return super().actor_step(learner, batch, key, clock)
        turn = (learner.updates + 1) % self.config.delay == 0
        learner, metrics = step_if(turn, super().actor_step, (learner,), batch, key, clock)
        # Metrics are 0 at the steps between, so scale them: the mean is then that of actor steps.
        return learner, {name: value * self.config.delay for name, value in metrics.items()}

    def actor_loss(
        self, params: dict, learner: Learner, batch: Batch, key: Array
    ) -> tuple[Array, tuple[Metrics, Array]]:
        """−Q of the agent's new action, with the others' actions as taken."""
        context = self.played(batch, batch.window.rivals)
        actor = params["actor"]
        weight = batch.actor_weight
        policy, _ = self.policy(actor, context, self.start(actor, context))
        own = policy.relaxed(key, self.config.temperature)
        q = self.q(learner.params["critic"][:1], self.with_own_actions(context, own))[0][..., 0]
        loss = -(q * weight).sum()
        penalty = (self.saturation(policy) * weight).sum()
        return loss + self.config.penalty * penalty, (
            {"actor_loss": loss, "saturation": penalty},
            jnp.zeros(()),
        )

    def saturation(self, policy: Any) -> Array:
        """`[T,B,N]` mean square of the logits of legal actions, or of the values before tanh."""
        out = policy.raw
        used = policy.legal
        return (out**2 * used).sum(-1) / jnp.maximum(used.sum(-1), 1)

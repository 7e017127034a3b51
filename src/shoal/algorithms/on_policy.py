"""The policy family: on-policy actors with critics that regress to λ-returns of the last window.

A member defines what its critic sees, the critic's targets, and the actor's loss.
"""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import TypeVar

from ..errors import ShoalError
from ..learning.losses import huber, squared
from ..learning.memory import Rollout
from ..learning.minibatches import Batch, Record, fold_time, in_chunks
from ..learning.normalise import ReturnNormaliser
from ..learning.reduce import mean_weights, moments
from ..learning.returns import advantages, learning_weight, pool
from ..learning.trees import at
from ..nets.actor_critic import Actor, Critic, IdentityTorso
from ..nets.distributions import Categorical
from ..nets.heads import policy_head
from ..nets.inputs import ID, OBS, STATE, Context, InputPart, as_input, gather
from ..nets.layers import Dense, Rng
from ..types import Box, Clock, Decision, Discrete, MultiDiscrete, Share, Spec, View, Window
from .base import Metrics
from .networked import STATES, Carry, Hidden, expected
from .on_policy_config import OnPolicyConfig
from .windowed import Windowed


class Learner(NamedTuple):
    params: dict[str, Any]  # actor, critic
    target: Any  # a target critic, where the member has one
    opt: dict[str, Any]
    scale: ReturnNormaliser
    curiosity: Any = ()  # a `Motive`, where there is one
    statistics: Any = ()  # `Statistics`, where there are some


OnPolicyConfigT = TypeVar("OnPolicyConfigT", bound=OnPolicyConfig, default=OnPolicyConfig)


class OnPolicy(Windowed[OnPolicyConfigT, Learner]):
    """Base of the family; members override `critic_sees`, `regress` and `losses`."""

    family = "policy"
    spaces = (Discrete, MultiDiscrete, Box)
    critic_sees: ClassVar[tuple[InputPart, ...]] = (OBS, ID)

    def __init__(self, config: OnPolicyConfigT, spec: Spec):
        super().__init__(config, spec)
        own = config.reward == "own"
        central = STATE in self.critic_sees
        # with one state for all and own rewards, the critic needs agents' ids to tell them apart
        needed = self.alike and own and central
        sees = self.critic_inputs(self.critic_sees)
        own_value = needed or (self.told_apart and (own or OBS in sees))
        self.inputs["critic"] = tuple(part for part in sees if part is not ID or own_value)
        if OBS in self.critic_sees and not central:
            self.inputs["critic"] += self.heard
        if config.share_torso:
            if not {*self.inputs["critic"]} <= {*self.inputs["actor"]}:
                raise ShoalError(
                    f"{self.name}'s critic sees other inputs than its actor: set share_torso to"
                    " False"
                )
            self.inputs["critic"] = self.inputs["actor"]
        one = self.inputs["critic"] == (STATE,) and max(self.critic_owner) == 0
        self.critic_rows = 1 if one else spec.n

    @property
    def states(self) -> tuple[str, ...]:
        return STATES if STATE in self.critic_sees else ("game",)

    @property
    def critic_owner(self) -> tuple[int, ...]:
        """Owners of the critics' parameters; by default those of the actors'."""
        return self.owner

    def rate(self, part: str) -> float:
        return self.config.critic_lr or self.config.lr if part == "critic" else self.config.lr

    # -- nets --------------------------------------------------------------------------------------

    def init(self, rng: Rng) -> Learner:
        params: dict[str, Any] = {"actor": self.init_actor(rng), "critic": self.init_critic(rng)}
        opt = {part: self.tx.init(net) for part, net in params.items()}
        scale = ReturnNormaliser(jnp.zeros(()), jnp.ones(()), jnp.zeros(()))
        return Learner(
            params,
            self.init_target(params["critic"]),
            opt,
            scale,
            self.init_curiosity(rng),
            self.init_statistics(),
        )

    def init_actor(self, rng: Rng) -> Any:
        """The net that acts: a torso and a head, as `Actor`."""
        c = self.config
        torso = self.torso(rng, "actor")
        return Actor(torso, policy_head(rng, self.owner, c.hidden, self.spec, c.squash))

    def init_critic(self, rng: Rng) -> Any:
        """The net that predicts returns, as `Critic`."""
        owner = self.critic_owner
        torso = (
            IdentityTorso() if self.config.share_torso else self.torso(rng, "critic", owner=owner)
        )
        return Critic(torso, Dense(rng, owner, self.config.hidden, 1, gain=1.0))

    def init_target(self, critic: Any) -> Any:
        return None

    # -- acting ------------------------------------------------------------------------------------

    def carry(self, learner: Learner, games: int) -> Carry:
        return self.initial_carry(learner.params["actor"].torso, games)

    def act(
        self, learner: Learner, key: Array, view: View, carry: Carry, clock: Clock, greedy: bool
    ) -> Decision:
        context = self.context(learner, view, carry)
        dist, raw, hidden = self.decide(
            learner.params["actor"], context, carry.hidden, clock, key, greedy
        )
        log_prob = dist.log_prob(raw)[0]
        action = dist.action(raw)[0]
        return Decision(action, self.next_carry(hidden, action, carry), Record(raw[0], log_prob))

    def logits(self, learner: Learner, view: View, carry: Carry, clock: Clock) -> Array | None:
        actor = learner.params["actor"]
        context = self.context(learner, view, carry)
        unused = jax.random.key(0)
        dist, _, _ = self.decide(actor, context, carry.hidden, clock, unused, greedy=True)
        return dist.log_probs[0] if isinstance(dist, Categorical) else None

    def values(self, learner: Learner, view: View, carry: Carry, clock: Clock) -> Array | None:
        critic = learner.params.get("critic")
        if critic is None:
            return None
        own = critic.torso.carry(view.first.shape[0], self.critic_rows)
        if any(leaf.size for leaf in jax.tree.leaves(own)):  # it remembers what no view holds
            return None
        actor = learner.params["actor"]
        context = self.context(learner, view, carry)
        unused = jax.random.key(0)
        dist, raw, _ = self.decide(actor, context, carry.hidden, clock, unused, greedy=True)
        action = self.acted(as_input(dist.action(raw), self.spec), context.view)
        context = context._replace(action=action)
        features = None
        if self.config.share_torso:
            _, features, _ = self.policy(actor, context, carry.hidden, clock)
        out, _ = self.critic(critic, context, own, features)
        values = expected(out, dist)[0]
        if self.config.normalise_value:
            values = learner.scale.up(values)
        return jnp.broadcast_to(self.in_rewards(learner, values), view.alive.shape)

    def decide(
        self, actor: Actor, context: Context, carry: Hidden, clock: Clock, key: Array, greedy: bool
    ) -> tuple[Any, Array, Hidden]:
        """The policy, its sample, and the carry after it.

        Agents that decide one after another override this. They pass the choices of earlier agents
        to `policy` as `context.action`; when the policy learns, that field holds the actions taken.
        """
        dist, _, hidden = self.policy(actor, context, carry, clock)
        return dist, dist.mode() if greedy else dist.sample(key), hidden

    def policy(
        self, actor: Actor, context: Context, carry: Hidden, clock: Clock
    ) -> tuple[Any, Array, Hidden]:
        """The policy at every instant, its torso's features, and the carry after the last."""
        return actor(
            gather(self.inputs["actor"], context, self.spec),
            carry,
            context.view.first,
            context.view.legal,
        )

    # -- learning ----------------------------------------------------------------------------------

    def memory(self, learner: Learner, share: Share) -> Rollout:
        return Rollout(learner.params["critic"].torso.carry(share.games, self.critic_rows))

    def learn(
        self, learner: Learner, memory: Rollout, key: Array, clock: Clock
    ) -> tuple[Learner, Rollout, Metrics]:
        key_regress, key_study, key_rows = jax.random.split(key, 3)
        memory = memory._replace(window=self.read(learner, memory.window, clock))
        learner, batch, carry = self.prepare(learner, memory, key_regress, clock)
        if not self.recurrent:
            batch = fold_time(batch, "actor_carry", "critic_carry")
        elif self.config.chunk:
            batch = self.chunked(learner, batch, clock)
        learner = self.critic_first(learner, batch, key_study, clock)
        learner, metrics = self.improve(learner, batch, key_rows, clock)
        return learner, Rollout(carry), metrics

    def chunked(self, learner: Learner, batch: Batch, clock: Clock) -> Batch:
        """The window's chunks as rows, each with the carries that it begins with."""

        def unroll(context: Context, carries: tuple[Hidden, Hidden]) -> tuple[Hidden, Hidden]:
            actor, critic = carries
            _, features, actor = self.policy(learner.params["actor"], context, actor, clock)
            _, critic = self.critic(learner.params["critic"], context, critic, features)
            return actor, critic

        start = at((batch.actor_carry, batch.critic_carry), 0)
        actor, critic = self.chunk_carries(unroll, batch.context, start)
        batch = batch._replace(actor_carry=None, critic_carry=None)
        batch = in_chunks(batch, self.config.chunk)
        return batch._replace(actor_carry=actor, critic_carry=critic)

    def improve(
        self, learner: Learner, batch: Batch, key: Array, clock: Clock
    ) -> tuple[Learner, Metrics]:
        """Gradient steps on the window; agents that learn one after another do it in turn."""
        c = self.config
        parts = ("actor", "critic")
        return self.passes(self.losses, parts, learner, batch, key, clock, c.epochs, c.minibatches)

    def critic_first(self, learner: Learner, batch: Batch, key: Array, clock: Clock) -> Learner:
        """Train the critic on the window before the actor; by default do nothing."""
        return learner

    @jax.named_scope("target")
    def prepare(
        self, learner: Learner, memory: Rollout, key: Array, clock: Clock
    ) -> tuple[Learner, Batch, Hidden]:
        """Targets and advantages of the window before any update; the critic's next carry."""
        window = memory.window
        c = self.config
        reward, discount = pool(window.reward, window.discount, c.reward)
        context, end = self._contexts(window)
        values, carry = self.regress(learner, context, end, memory, key, clock)
        reward, discount = self.settled(window.view, reward, discount, values)
        adv = advantages(reward, discount, values, window.valid, c.gamma, c.lam)
        target = adv + values[:-1]
        value = self.unit(learner, values[:-1])
        weight = window.weight
        critic_weight = learning_weight(window, c.reward)
        if c.normalise_value:
            scale = learner.scale.update(target, mean_weights(critic_weight))
            if c.popart:
                learner = self.preserved(learner, scale)
                value = scale.down(values[:-1])
            learner = learner._replace(scale=scale)
        if c.normalise_advantage:
            mean, variance = moments(adv, mean_weights(weight))
            adv = (adv - mean) / (jnp.sqrt(variance) + 1e-8)
        carries = at((window.carry.hidden, memory.carry), None)
        return (
            learner,
            Batch(context, window.record, weight, critic_weight, target, value, adv, *carries),
            carry,
        )

    def preserved(self, learner: Learner, scale: ReturnNormaliser) -> Learner:
        """The learner with critics that predict under `scale` what they did (PopArt, eq. 3-5)."""
        ratio = learner.scale.deviation / scale.deviation
        shift = (learner.scale.mean - scale.mean) / scale.deviation
        critic = learner.params["critic"].rescaled(ratio, shift)
        target = learner.target
        if target is not None:
            target = target.rescaled(ratio, shift)
        return learner._replace(params=learner.params | {"critic": critic}, target=target)

    def _contexts(self, window: Window) -> tuple[Context, Context]:
        """Instants 0…T-1 with their actions, and instant T alone."""
        whole = self.instants(window)
        context, acting = at((whole, window.view), np.s_[:-1])
        context = context._replace(action=self.acted(as_input(window.action, self.spec), acting))
        return context, at(whole, np.s_[-1:])

    def regress(
        self,
        learner: Learner,
        context: Context,
        end: Context,
        memory: Rollout,
        key: Array,
        clock: Clock,
    ) -> tuple[Array, Hidden]:
        """Values `[T+1,B,N]` to bootstrap from, and the critic's carry at instant T."""
        actor = learner.params["actor"]
        critic = learner.params["critic"]
        _, features, hidden = self.policy(actor, context, memory.window.carry.hidden, clock)
        before, carry = self.critic(critic, context, memory.carry, features)
        _, features, _ = self.policy(actor, end, hidden, clock)
        last, _ = self.critic(critic, end, carry, features)
        values = jnp.concatenate([before, last])[..., 0]
        if self.config.normalise_value:
            values = learner.scale.up(values)
        return jnp.broadcast_to(values, memory.window.view.reward.shape), carry

    def critic(
        self, critic: Any, context: Context, carry: Hidden, features: Array | None = None
    ) -> tuple[Array, Hidden]:
        """Outputs `[T,B,N or 1,…]` of the critic; `features` are the actor's."""
        if self.config.share_torso and features is not None:
            return critic((features,), carry, context.view.first)
        return critic(gather(self.inputs["critic"], context, self.spec), carry, context.view.first)

    def losses(
        self, params: dict, learner: Learner, batch: Batch, clock: Clock
    ) -> tuple[Array, Metrics]:
        """Sum of the actor's and the critic's loss, this device's share."""
        actor, features, metrics = self.actor_losses(params["actor"], batch, clock)
        critic, more = self.critic_losses(params["critic"], learner, batch, features)
        return actor + critic, metrics | more

    def actor_losses(
        self, actor: Actor, batch: Batch, clock: Clock
    ) -> tuple[Array, Array, Metrics]:
        """The actor's loss minus its entropy bonus, its torso's features, and metrics."""
        dist, features, _ = self.policy(actor, batch.context, at(batch.actor_carry, 0), clock)
        loss, metrics = self.actor_loss(dist, batch)
        entropy = (dist.entropy() * batch.weight).sum()
        metrics |= {"actor_loss": loss, "entropy": entropy}
        return loss - self.entropy_weight(clock) * entropy, features, metrics

    def entropy_weight(self, clock: Clock) -> Array:
        """The entropy bonus's weight at this point of the run."""
        c = self.config
        return c.entropy * (1 - c.entropy_decay * jnp.minimum(clock.progress, 1.0))

    def critic_losses(
        self, critic: Any, learner: Learner, batch: Batch, features: Array | None = None
    ) -> tuple[Array, Metrics]:
        """The critic's loss, and metrics."""
        values, _ = self.critic(critic, batch.context, at(batch.critic_carry, 0), features)
        loss = self.critic_loss(values[..., 0], learner, batch)
        return self.config.value_weight * loss, {"critic_loss": loss}

    def critic_alone(
        self, params: dict, learner: Learner, batch: Batch, clock: Clock
    ) -> tuple[Array, Metrics]:
        """The loss where the critic learns without the actor."""
        return self.critic_losses(params["critic"], learner, batch)

    def actor_loss(self, dist: Any, batch: Batch) -> tuple[Array, Metrics]:
        """−log π · A."""
        return -(dist.log_prob(batch.record.raw) * batch.advantage * batch.weight).sum(), {}

    def log_ratio(self, dist: Any, batch: Batch) -> Array:
        """`[T,B,N]` log ratio of new to acting probability of each action taken.

        0 where the weight is 0: a dead agent's ratio may be infinite, and inf · 0 is NaN.
        """
        log_ratio = dist.log_prob(batch.record.raw) - batch.record.log_prob
        return jnp.where(batch.weight > 0, log_ratio, 0.0)

    def critic_loss(self, value: Array, learner: Learner, batch: Batch) -> Array:
        """Loss of the values' errors, in the critic's own unit."""
        error = value - self.unit(learner, batch.target)
        return (self.value_loss(error) * batch.critic_weight).sum()

    def value_loss(self, error: Array) -> Array:
        """Loss of each error of the critic."""
        c = self.config
        return huber(error, c.huber_delta) if c.value_loss == "huber" else squared(error)

    def unit(self, learner: Learner, value: Array) -> Array:
        """Convert returns to the critic's unit."""
        return learner.scale.down(value) if self.config.normalise_value else value

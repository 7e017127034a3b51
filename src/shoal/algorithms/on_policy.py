"""The policy family: on-policy actors with critics that regress to λ-returns of the last window.

A member defines what its critic sees, the critic's targets, and the actor's loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import TypeVar

from ..errors import ShoalError
from ..learning.memory import Rollout
from ..learning.minibatches import Batch, Record, fold_time, shuffled_rows
from ..learning.normalise import ReturnNormaliser
from ..learning.optim import adam, annealed, descend
from ..learning.reduce import mean_weights, moments, total
from ..learning.returns import advantages, learning_weight, left, pool, settle
from ..learning.trees import at
from ..nets import torsos
from ..nets.actor_critic import Actor, Critic, IdentityTorso
from ..nets.distributions import Categorical
from ..nets.heads import policy_head
from ..nets.inputs import ID, OBS, STATE, Context, InputPart, as_input, gather
from ..nets.layers import Dense, Rng
from ..types import Clock, Decision, Fit, Share, Spec, TeamProtocol, View, Window
from .base import Metrics, divisor, fraction, not_negative, positive
from .networked import Carry, Hidden, NetConfig, Networked


@dataclass(frozen=True)
class OnPolicyConfig(NetConfig):
    """Settings every member of the family has."""

    critic_lr: float = 0.0
    """Learning rate of the critic; 0 takes the actor's."""
    lam: float = 0.95
    """λ: 0 trusts the critic's next value alone, 1 the rewards of the whole window."""
    entropy: float = 0.01
    """Weight of the entropy bonus."""
    epochs: int = 1
    """Passes over each window."""
    minibatches: int = 1
    """Gradient steps per pass; games are split when recurrent, (game, step) rows otherwise."""
    normalise_advantage: bool = True
    """Give the window's advantages zero mean and unit variance (dividing by their deviation +
    1e-8)."""
    normalise_value: bool = True
    """Let the critic predict returns in units of their running mean and deviation, which is taken
    for 0.01 at least."""
    share_torso: bool = False
    """Let the critic read the actor's last hidden layer instead of a torso of its own."""
    squash: bool = False
    """Continuous actions: squash the Gaussian by tanh into the bounds instead of clipping it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "epochs", "minibatches")
        not_negative(self, "critic_lr")
        fraction(self, "lam")


class Learner(NamedTuple):
    params: dict[str, Any]  # actor, critic
    target: Any  # a target critic, where the member has one
    opt: dict[str, Any]
    scale: ReturnNormaliser


OnPolicyConfigT = TypeVar("OnPolicyConfigT", bound=OnPolicyConfig, default=OnPolicyConfig)


class OnPolicy(Networked[OnPolicyConfigT, Learner, Rollout]):
    """Base of the family; members override `critic_sees`, `regress` and `losses`."""

    family = "policy"
    critic_sees: ClassVar[tuple[InputPart, ...]] = (OBS, ID)
    epochs: ClassVar[tuple[str, ...]] = ("epochs",)  # options that count passes over a window
    minibatches: ClassVar[tuple[str, ...]] = ("minibatches",)  # options that split a pass

    def __init__(self, config: OnPolicyConfigT, spec: Spec):
        super().__init__(config, spec)
        own = config.reward == "own"
        central = STATE in self.critic_sees
        # with one state for all and own rewards, the critic needs agents' ids to tell them apart
        needed = self.alike and own and central
        own_value = needed or (self.told_apart and (own or OBS in self.critic_sees))
        self.inputs["critic"] = tuple(
            part for part in self.critic_sees if part is not ID or own_value
        )
        if config.share_torso and self.inputs["critic"] != self.inputs["actor"]:
            raise ShoalError(
                f"{self.name}'s critic sees other inputs than its actor: set share_torso to False"
            )
        one = self.inputs["critic"] == (STATE,) and max(self.critic_owner) == 0
        self.critic_rows = 1 if one else spec.n
        self.tx = adam(config.max_grad_norm)

    @property
    def critic_owner(self) -> tuple[int, ...]:
        """Owners of the critics' parameters; by default those of the actors'."""
        return self.owner

    @classmethod
    def _rows(cls, config: OnPolicyConfig, share: Share) -> tuple[int, str]:
        """The number of rows that minibatches split, and the name of a row."""
        if torsos.find(config.torso).recurrent:
            return share.games, "games"
        return share.games * share.window, "rows (games x window)"

    @classmethod
    def suited(cls, config: OnPolicyConfigT, share: Share) -> list[Fit]:
        rows, what = cls._rows(config, share)
        counts = {option: getattr(config, option) for option in cls.minibatches}
        to = f"{rows:,} {what} on each device"
        return [
            Fit(name, divisor(rows, count), to)
            for name, count in counts.items()
            if count > 0 and rows % count
        ]

    def check(self, share: Share) -> None:
        rows, what = self._rows(self.config, share)
        for option in self.minibatches:
            count = getattr(self.config, option)
            if count < 1 or rows % count:
                raise ShoalError(
                    f"{rows} {what} on each device cannot be split into {count} equal minibatches:"
                    f" change {option}, games or window"
                )

    def protocol(self, share: Share) -> TeamProtocol:
        return {
            "reward": self.config.reward,
            "updates_per_step": sum(getattr(self.config, name) for name in self.epochs),
        }

    # -- nets --------------------------------------------------------------------------------------

    def init(self, rng: Rng) -> Learner:
        c = self.config
        actor = Actor(
            self.torso(rng, "actor"), policy_head(rng, self.owner, c.hidden, self.spec, c.squash)
        )
        params: dict[str, Any] = {"actor": actor, "critic": self.init_critic(rng)}
        opt = {part: self.tx.init(net) for part, net in params.items()}
        scale = ReturnNormaliser(jnp.zeros(()), jnp.ones(()), jnp.zeros(()))
        return Learner(params, self.init_target(params["critic"]), opt, scale)

    def init_critic(self, rng: Rng) -> Any:
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
        context = self.context(view, carry)
        dist, raw, hidden = self.decide(
            learner.params["actor"], context, carry.hidden, clock, key, greedy
        )
        log_prob = dist.log_prob(raw)[0]
        action = dist.action(raw)[0]
        return Decision(action, self.next_carry(hidden, action, carry), Record(raw[0], log_prob))

    def logits(self, learner: Learner, view: View, carry: Carry, clock: Clock) -> Array | None:
        actor = learner.params["actor"]
        context = self.context(view, carry)
        unused = jax.random.key(0)
        dist, _, _ = self.decide(actor, context, carry.hidden, clock, unused, greedy=True)
        return dist.log_probs[0] if isinstance(dist, Categorical) else None

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

    def remember(self, memory: Rollout, window: Window) -> Rollout:
        return memory._replace(window=window)

    def learn(
        self, learner: Learner, memory: Rollout, key: Array, clock: Clock
    ) -> tuple[Learner, Rollout, Metrics]:
        key_regress, key_study, key_rows = jax.random.split(key, 3)
        learner, batch, carry = self.prepare(learner, memory, key_regress, clock)
        if not self.recurrent:
            batch = fold_time(batch)
        learner = self.critic_first(learner, batch, key_study, clock)
        learner, metrics = self.improve(learner, batch, key_rows, clock)
        return learner, Rollout(carry), metrics

    def improve(
        self, learner: Learner, batch: Batch, key: Array, clock: Clock
    ) -> tuple[Learner, Metrics]:
        """Gradient steps on the window; override this for agents that learn one after another."""
        c = self.config
        parts = ("actor", "critic")
        return self.passes(self.losses, parts, learner, batch, key, clock, c.epochs, c.minibatches)

    def critic_first(self, learner: Learner, batch: Batch, key: Array, clock: Clock) -> Learner:
        """Train the critic on the window before the actor; by default do nothing."""
        return learner

    def passes(
        self,
        losses: Callable,
        parts: tuple[str, ...],
        learner: Learner,
        batch: Batch,
        key: Array,
        clock: Clock,
        epochs: int,
        minibatches: int,
    ) -> tuple[Learner, Metrics]:
        """Gradient steps of some parts over shuffled minibatches; metrics are their means."""
        rows = shuffled_rows(key, batch.weight.shape[1], epochs, minibatches)
        learner, metrics = jax.lax.scan(
            partial(self._update, losses, parts, batch, clock), learner, rows
        )
        return learner, jax.tree.map(jnp.mean, metrics)

    def prepare(
        self, learner: Learner, memory: Rollout, key: Array, clock: Clock
    ) -> tuple[Learner, Batch, Hidden]:
        """Targets and advantages of the window before any update; the critic's next carry."""
        window = memory.window
        c = self.config
        reward, discount = pool(window.reward, window.discount, c.reward)
        context, end = self._contexts(window)
        values, carry = self.regress(learner, context, end, memory, key, clock)
        if self.spec.leaves:
            reward, discount = settle(reward, discount, values, left(window.view, c.reward))
        adv = advantages(reward, discount, values, window.valid, c.gamma, c.lam)
        target = adv + values[:-1]
        value = self.unit(learner, values[:-1])
        weight = window.weight
        critic_weight = learning_weight(window, c.reward)
        if c.normalise_value:
            learner = learner._replace(
                scale=learner.scale.update(target, mean_weights(critic_weight))
            )
        if c.normalise_advantage:
            mean, variance = moments(adv, mean_weights(weight))
            adv = (adv - mean) / (jnp.sqrt(variance) + 1e-8)
        carries = at((window.carry.hidden, memory.carry), None)
        return (
            learner,
            Batch(context, window.record, weight, critic_weight, target, value, adv, *carries),
            carry,
        )

    def _contexts(self, window: Window) -> tuple[Context, Context]:
        """Instants 0…T-1 with their actions, and instant T alone."""
        last = self.previous_actions(window.view, window.action, window.carry.last[None])
        whole = Context(self.seen(window.view), last)
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

    def _update(
        self,
        losses: Callable,
        parts: tuple[str, ...],
        batch: Batch,
        clock: Clock,
        learner: Learner,
        rows: Array,
    ) -> tuple[Learner, Metrics]:
        """One gradient step on one minibatch of rows."""
        c = self.config
        if len(rows) < batch.weight.shape[1]:
            batch = jax.tree.map(lambda x: x.at[:, rows].get(mode="promise_in_bounds"), batch)
        batch = batch._replace(
            weight=mean_weights(batch.weight), critic_weight=mean_weights(batch.critic_weight)
        )
        grads, metrics = total(
            jax.grad(losses, has_aux=True)(learner.params, learner, batch, clock)
        )
        rates = {"actor": c.lr, "critic": c.critic_lr or c.lr}
        rates = {
            part: annealed(rate, c.anneal, clock.progress)
            for part, rate in rates.items()
            if part in parts
        }
        params, opt, norms = descend(self.tx, learner.params, learner.opt, grads, rates)
        learner = learner._replace(params=params, opt=opt)
        return self.updated(learner), metrics | norms

    def updated(self, learner: Learner) -> Learner:
        """Hook after each gradient step."""
        return learner

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
        return loss - self.config.entropy * entropy, features, metrics

    def critic_losses(
        self, critic: Any, learner: Learner, batch: Batch, features: Array | None = None
    ) -> tuple[Array, Metrics]:
        """The critic's loss, and metrics."""
        values, _ = self.critic(critic, batch.context, at(batch.critic_carry, 0), features)
        loss = self.critic_loss(values[..., 0], learner, batch)
        return loss, {"critic_loss": loss}

    def critic_alone(
        self, params: dict, learner: Learner, batch: Batch, clock: Clock
    ) -> tuple[Array, Metrics]:
        """The loss where the critic learns without the actor."""
        return self.critic_losses(params["critic"], learner, batch)

    def actor_loss(self, dist: Any, batch: Batch) -> tuple[Array, Metrics]:
        """−log π · A."""
        return -(dist.log_prob(batch.record.raw) * batch.advantage * batch.weight).sum(), {}

    def critic_loss(self, value: Array, learner: Learner, batch: Batch) -> Array:
        """Squared error of the values, in the critic's own unit."""
        return (0.5 * (value - self.unit(learner, batch.target)) ** 2 * batch.critic_weight).sum()

    def unit(self, learner: Learner, value: Array) -> Array:
        """Convert returns to the critic's unit."""
        return learner.scale.down(value) if self.config.normalise_value else value

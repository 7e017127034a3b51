"""The pathwise family: actors ascend the critic's gradient with respect to their own action.

A member defines its policies, the critic's value of the next instant and the actor's loss. Its
central variant changes only what the critic sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import TypeVar

from ..errors import ShoalError
from ..learning.trees import at
from ..nets.inputs import (
    ACTION,
    ID,
    JOINT_ACTION,
    OBS,
    RIVALS_ACTION,
    STATE,
    Context,
    InputPart,
    as_action,
    as_input,
    gather,
    width,
)
from ..nets.layers import Dense, Rng, owners
from ..nets.mlp import Mlp, Parts, Style
from ..types import Clock, Decision, Discrete, Spec, View
from .base import Metrics, not_negative
from .networked import STATES, Carry, Hidden, expected
from .off_policy import Batch, Learner, OffPolicy, OffPolicyConfig, gradients, surprise


@dataclass(frozen=True)
class PathwiseConfig(OffPolicyConfig):
    """Settings every member of the family has."""

    critic_lr: float = 0.0
    """Learning rate of the critic; 0 takes the actor's."""
    critic_sharing: str = ""
    """Parameters of the critics: shared, own or a partition; empty takes the actors'."""
    rivals: bool = False
    """Central critics: show them the other teams' actions too."""

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative(self, "critic_lr")


class Actor(eqx.Module):
    torso: Any
    head: Any

    def __call__(
        self, parts: Parts, carry: Hidden, first: Array, legal: Array
    ) -> tuple[Any, Hidden]:
        features, carry = self.torso(parts, carry, first)
        return self.head(features, legal), carry

    def carry(self, games: int, rows: int) -> Hidden:
        return self.torso.carry(games, rows)


class Critic(eqx.Module):
    """Q of inputs and actions.

    A recurrent torso reads only the inputs; actions are concatenated to its features.
    """

    memory: Any  # a recurrent torso, or None
    torso: Any
    out: Dense

    def __call__(self, seen: Parts, actions: Parts, first: Array) -> Array:
        if self.memory is not None:
            rows = max(part.shape[-2] for part in seen)
            features, _ = self.memory(seen, self.memory.carry(first.shape[1], rows), first)
            seen = (features,)
        features, _ = self.torso((*seen, *actions), jnp.zeros(()), first)
        return self.out(features)


PathwiseConfigT = TypeVar("PathwiseConfigT", bound=PathwiseConfig, default=PathwiseConfig)


class Pathwise(OffPolicy[PathwiseConfigT]):
    """Base of the family.

    Members define `head`, `greedy`, `explore`, `next_values` and `actor_loss`, and `bonus` if a
    policy earns something beside the reward, such as entropy.
    """

    family = "pathwise"
    central: ClassVar[bool] = False  # critics see the state and every agent's action

    def __init__(self, config: PathwiseConfigT, spec: Spec):
        super().__init__(config, spec)
        if config.rivals and not self.central:
            raise ShoalError(
                f"{self.name}'s critics see only their own agent's action: set rivals to False,"
                " or choose an algorithm with central critics"
            )
        self.critic_owner = owners(config.critic_sharing or config.sharing, spec)
        pooled = config.reward != "own"
        alike = len(set(self.critic_owner)) == 1
        # one critic output is the value of the whole team
        alone = config.state in ("agent", "pruned")  # each agent sees the state its own way
        self.team_critic = self.central and pooled and alike and self.outs == 1 and not alone
        told_apart = (
            spec.n > 1
            and len(set(self.critic_owner)) < spec.n
            and (self.central or config.agent_id)
        )
        own = () if self.team_critic else (OBS, *((ID,) if told_apart else ()))  # whose value it is
        self.inputs["critic"] = self.critic_inputs(((STATE,) if self.central else ()) + own)
        self.inputs["action"] = (*self.acted_sees, *((RIVALS_ACTION,) if config.rivals else ()))

    @property
    def states(self) -> tuple[str, ...]:
        return STATES if self.central else ("game",)

    @property
    def acted_sees(self) -> tuple[InputPart, ...]:
        """The team's actions that the critic sees."""
        return (JOINT_ACTION if self.central else ACTION,)

    @property
    def outs(self) -> int:
        """Outputs of a critic: one Q, or one for each of the agent's own actions."""
        return 1

    # -- nets --------------------------------------------------------------------------------------

    def nets(self, rng: Rng) -> dict[str, Any]:
        return {
            "actor": self.actor(rng),
            "critic": tuple(self.critic(rng) for _ in range(self.twins)),
        }

    def actor(self, rng: Rng) -> Any:
        """The net, or nets, that act."""
        return Actor(self.torso(rng, "actor"), self.head(rng))

    @property
    def twins(self) -> int:
        """Number of critics; targets use their minimum."""
        return 1

    def head(self, rng: Rng) -> Any:
        """Features -> policy."""
        raise NotImplementedError

    def critic(self, rng: Rng) -> Any:
        """A critic; recurrent only if it does not see the state."""
        c = self.config
        owner = self.critic_owner
        acted = width(self.inputs["action"], self.spec)
        if self.recurrent and not self.central:
            memory = self.torso(rng, "critic", owner=owner)
            torso = Mlp(
                rng, owner, c.hidden + acted, c.hidden, c.layers, Style(c.activation, c.layer_norm)
            )
        else:
            memory = None
            torso = self.torso(rng, "critic", "mlp", owner, acted)
        return Critic(memory, torso, Dense(rng, owner, c.hidden, self.outs, gain=1.0))

    def rate(self, part: str) -> float:
        return self.config.critic_lr or self.config.lr if part == "critic" else self.config.lr

    # -- acting ------------------------------------------------------------------------------------

    def carry(self, learner: Learner, games: int) -> Carry:
        return self.initial_carry(learner.params["actor"], games)

    def act(
        self, learner: Learner, key: Array, view: View, carry: Carry, clock: Clock, greedy: bool
    ) -> Decision:
        policy, hidden = self.policy(
            learner.params["actor"], self.context(learner, view, carry), carry.hidden
        )
        unit = (self.greedy(policy) if greedy else self.explore(policy, key, view.legal, clock))[0]
        action = as_action(unit, self.spec)
        return Decision(action, self.next_carry(hidden, action, carry), ())

    def logits(self, learner: Learner, view: View, carry: Carry, clock: Clock) -> Array | None:
        context = self.context(learner, view, carry)
        policy, _ = self.policy(learner.params["actor"], context, carry.hidden)
        return policy.log_probs[0] if isinstance(self.spec.action, Discrete) else None

    def values(self, learner: Learner, view: View, carry: Carry, clock: Clock) -> Array | None:
        critics = learner.params.get("critic")
        if critics is None or self.sees_rivals or critics[0].memory is not None:
            return None
        context = self.context(learner, view, carry)
        policy, _ = self.policy(learner.params["actor"], context, carry.hidden)
        context = context._replace(action=self.acted(self.greedy(policy), context.view))
        qs = [expected(q, policy)[0] for q in self.q(critics, context)]
        values = self.in_rewards(learner, jnp.stack(qs).min(0))
        return jnp.broadcast_to(values, view.alive.shape)

    def policy(self, actor: Any, context: Context, carry: Hidden) -> tuple[Any, Hidden]:
        """The policy at every instant of a context, and the carry after the last."""
        return actor(
            gather(self.inputs["actor"], context, self.spec),
            carry,
            context.view.first,
            context.view.legal,
        )

    def greedy(self, policy: Any) -> Array:
        """`[T,B,N,A]` the policy's best action, as nets read it."""
        raise NotImplementedError

    def explore(self, policy: Any, key: Array, legal: Array, clock: Clock) -> Array:
        """`[T,B,N,A]` the action taken in training, as nets read it."""
        raise NotImplementedError

    # -- learning ----------------------------------------------------------------------------------

    def improve(
        self, learner: Learner, batch: Batch, key: Array, clock: Clock
    ) -> tuple[Learner, Metrics, Array]:
        """A step of the critic, then of the actor against the new critic, then of the targets."""
        key_critic, key_actor = jax.random.split(key)
        parts = {"critic": learner.params["critic"]}
        grads, metrics, wrong = gradients(self.critic_loss, parts, learner, batch, key_critic)
        learner, norms = self.descended(learner, ("critic",), grads, clock)
        learner, more = self.actor_step(learner, batch, key_actor, clock)
        return self.followed(learner), metrics | norms | more, wrong

    def actor_step(
        self, learner: Learner, batch: Batch, key: Array, clock: Clock
    ) -> tuple[Learner, Metrics]:
        """A step of the actor and all other parts but the critic."""
        parts = {part: net for part, net in learner.params.items() if part != "critic"}
        grads, metrics, _ = gradients(self.actor_loss, parts, learner, batch, key)
        learner, norms = self.descended(learner, tuple(parts), grads, clock)
        return learner, metrics | norms

    def critic_loss(
        self, params: dict, learner: Learner, batch: Batch, key: Array
    ) -> tuple[Array, tuple[Metrics, Array]]:
        """Sum of all critics' squared errors, this device's share."""
        target = jax.lax.stop_gradient(self.critic_targets(learner, batch, key))
        qs = [
            self.q_taken(q, batch)
            for q in self.q(params["critic"], self.played(batch, batch.window.rivals))
        ]
        weight = batch.weight.sum(-1, keepdims=True) if self.team_critic else batch.weight
        squares = (0.5 * (q - target) ** 2 * weight * batch.importance[:, None] for q in qs)
        loss = jnp.asarray(sum(square.sum() for square in squares))
        metrics = {"critic_loss": loss, "q": (qs[0] * weight).sum()}
        return loss, (metrics, surprise(qs[0] - target, weight))

    @jax.named_scope("target")
    def critic_targets(self, learner: Learner, batch: Batch, key: Array) -> Array:
        """`[T,B,N or 1]` regression targets of the critics.

        Over several steps, every reward but the first includes its bonus. The first has none, as
        its action is given; the bootstrapped value includes its own.
        """
        rivals = (
            jnp.concatenate([batch.window.rivals, batch.rivals_after[None]])
            if self.sees_rivals
            else None
        )
        values = self.next_values(learner, batch.context, rivals, key)
        if self.config.n_step == 1 and not self.config.lam:  # there is no step between
            return self.targets(batch, values)
        bonus = self.bonus(learner, batch.context, key)[:-1]
        return self.targets(batch._replace(reward=batch.reward + bonus), values) - bonus

    def next_values(
        self, learner: Learner, context: Context, rivals: Array | None, key: Array
    ) -> Array:
        """`[T+1,B,N or 1]` target critics' value of every instant under the policies."""
        raise NotImplementedError

    def bonus(self, learner: Learner, context: Context, key: Array) -> Array:
        """`[T+1,B,N or 1]` what a policy earns beside the reward; 0 by default.

        `next_values` must include it.
        """
        return jnp.zeros((*context.view.first.shape, 1))

    def actor_loss(
        self, params: dict, learner: Learner, batch: Batch, key: Array
    ) -> tuple[Array, tuple[Metrics, Array]]:
        """The actor's loss."""
        raise NotImplementedError

    def q_taken(self, q: Array, batch: Batch) -> Array:
        """`[T,B,N or 1]` Q of the actions taken."""
        return q[..., 0]

    def played(self, batch: Batch, rivals: Array) -> Context:
        """Instants 0…T-1 with the actions taken; those of absent agents are zero."""
        context = at(batch.context, np.s_[:-1])
        return context._replace(
            action=self.acted(as_input(batch.window.action, self.spec), context.view), rivals=rivals
        )

    def q(self, critics: tuple[Any, ...], context: Context) -> list[Array]:
        """Q `[T,B,N or 1,outs]` of each critic."""
        seen, actions = (
            gather(self.inputs[part], context, self.spec) for part in ("critic", "action")
        )
        return [critic(seen, actions, context.view.first) for critic in critics]

    def with_own_actions(self, context: Context, own: Array) -> Context:
        """Replace each agent's action by `own [T,B,N,A]` in the inputs of its own critic.

        The others' actions stay.
        """
        own = self.acted(own, context.view)
        if not self.central:
            return context._replace(action=own)
        mine = jnp.eye(self.spec.n)[:, :, None]
        return context._replace(
            action=context.action[..., None, :, :] * (1 - mine) + own[..., None, :] * mine
        )

    def start(self, actor: Any, context: Context) -> Hidden:
        """The initial carry for drawn windows."""
        return actor.carry(context.view.first.shape[1], self.spec.n)

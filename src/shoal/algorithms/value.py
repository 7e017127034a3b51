"""The value family: agents have utilities of their actions, and a mixer makes the team's value.

A member defines the mixer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from typing_extensions import TypeVar

from ..learning.exploration import SCHEDULES, epsilon_greedy
from ..learning.trees import at
from ..nets.distributions import pick
from ..nets.heads import best_action, dueling
from ..nets.inputs import Context, InputPart, as_input, gather
from ..nets.layers import Dense, Rng
from ..nets.mlp import Parts
from ..types import Clock, Decision, Discrete, Spec, View
from .base import Metrics, fraction, positive
from .networked import Carry, Hidden
from .off_policy import Batch, Learner, OffPolicy, OffPolicyConfig, gradients, surprise


@dataclass(frozen=True)
class ValueConfig(OffPolicyConfig):
    """Settings every member of the family has."""

    double: bool = True
    """Let the online net choose the target's action (double Q-learning)."""
    dueling: bool = False
    """Utilities as a value plus centred advantages."""
    hysteresis: float = 1.0
    """Weight of errors that would lower a value (hysteretic Q-learning): 1 is plain, less is
    hopeful of teammates, 0 never lowers a value."""
    epsilon: float = 1.0
    """Probability of a random legal action, at the start."""
    epsilon_end: float = 0.05
    """The same at the end of its schedule."""
    epsilon_steps: float = 200_000
    """Environment steps over which it falls."""
    epsilon_decay: Literal["linear", "exponential"] = "linear"
    """How it falls."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "epsilon_steps")
        fraction(self, "hysteresis", "epsilon", "epsilon_end")


@dataclass(frozen=True)
class MixConfig(ValueConfig):
    """The family's settings; the reward is the team's."""

    reward: Literal["mean", "sum"] = "mean"
    """The team's reward: the mean or the sum of its agents'."""


class Utility(eqx.Module):
    """An agent's value of each of its actions."""

    torso: Any
    out: Dense  # a row of utilities; dueling adds one number, the value

    def __call__(
        self, parts: Parts, carry: Hidden, first: Array, legal: Array
    ) -> tuple[Array, Hidden]:
        features, carry = self.torso(parts, carry, first)
        out = self.out(features)
        return (dueling(out, legal) if out.shape[-1] > legal.shape[-1] else out), carry


ValueConfigT = TypeVar("ValueConfigT", bound=ValueConfig, default=ValueConfig)


class Value(OffPolicy[ValueConfigT]):
    """Base of the family; members override `mixer` and `joint`, or `losses`."""

    acts = "agents"
    family = "value"

    spaces = (Discrete,)
    mixes: ClassVar[bool] = False  # whether utilities are mixed into one value of the team
    mixer_sees: ClassVar[tuple[InputPart, ...]] = ()  # its inputs beside the utilities

    def __init__(self, config: ValueConfigT, spec: Spec):
        super().__init__(config, spec)
        self.inputs["mixer"] = self.mixer_sees

    # -- nets --------------------------------------------------------------------------------------

    def nets(self, rng: Rng) -> dict[str, Any]:
        return {"agents": self.utility(rng), **self.mixer(rng)}

    def utility(self, rng: Rng) -> Utility:
        outs = self.spec.action.size + self.config.dueling
        return Utility(
            self.torso(rng, "actor"), Dense(rng, self.owner, self.config.hidden, outs, gain=1.0)
        )

    def mixer(self, rng: Rng) -> dict[str, Any]:
        """Parts of the learner beside the agents' nets, such as a mixer."""
        return {}

    # -- acting ------------------------------------------------------------------------------------

    def carry(self, learner: Learner, games: int) -> Carry:
        return self.initial_carry(learner.params["agents"].torso, games)

    def act(
        self, learner: Learner, key: Array, view: View, carry: Carry, clock: Clock, greedy: bool
    ) -> Decision:
        q, hidden = self.utilities(
            learner.params["agents"], self.context(view, carry), carry.hidden
        )
        action = (
            best_action(q[0], view.legal) if greedy else self.explore(key, q[0], view.legal, clock)
        )
        return Decision(action, self.next_carry(hidden, action, carry), ())

    def logits(self, learner: Learner, view: View, carry: Carry, clock: Clock) -> Array:
        context = self.context(view, carry)
        return self.utilities(learner.params["agents"], context, carry.hidden)[0][0]

    def explore(self, key: Array, q: Array, legal: Array, clock: Clock) -> Array:
        """Actions to take in training."""
        return epsilon_greedy(key, best_action(q, legal), legal, self.epsilon(clock))

    def epsilon(self, clock: Clock) -> Array:
        c = self.config
        return SCHEDULES[c.epsilon_decay](c.epsilon, c.epsilon_end, c.epsilon_steps, clock.steps)

    def utilities(self, net: Utility, context: Context, carry: Hidden) -> tuple[Array, Hidden]:
        """Utilities `[T,B,N,A]` at every instant of a context, and the carry after the last."""
        return net(
            gather(self.inputs["actor"], context, self.spec),
            carry,
            context.view.first,
            context.view.legal,
        )

    # -- learning ----------------------------------------------------------------------------------

    def improve(
        self, learner: Learner, batch: Batch, key: Array, clock: Clock
    ) -> tuple[Learner, Metrics, Array]:
        return self.descent(self.losses, learner, batch, clock)

    def descent(
        self, losses: Callable, learner: Learner, batch: Batch, clock: Clock
    ) -> tuple[Learner, Metrics, Array]:
        """A gradient step of every part on these losses."""
        grads, metrics, wrong = gradients(losses, learner.params, learner, batch)
        learner, norms = self.descended(learner, tuple(learner.params), grads, clock)
        return self.followed(learner), metrics | norms | {"epsilon": self.epsilon(clock)}, wrong

    def losses(
        self, params: dict, learner: Learner, batch: Batch
    ) -> tuple[Array, tuple[Metrics, Array]]:
        """Squared TD errors of the mixed utilities, this device's share."""
        online, follower, greedy = self.unrolled(params, learner, batch)
        view = batch.context.view
        q = self.joint(params, online[:-1], batch.window.action, at(view, np.s_[:-1]))
        values = self.joint(learner.target, follower, greedy, view)
        return self.regression(q, self.targets(batch, values), batch)

    def unrolled(self, params: dict, learner: Learner, batch: Batch) -> tuple[Array, Array, Array]:
        """Online and target utilities `[T+1,B,N,A]`, and the actions of the TD target."""
        start = params["agents"].torso.carry(batch.importance.shape[0], self.spec.n)
        online, _ = self.utilities(params["agents"], batch.context, start)
        follower, _ = self.utilities(learner.target["agents"], batch.context, start)
        return (
            online,
            follower,
            best_action(online if self.config.double else follower, batch.window.view.legal),
        )

    def joint(self, params: dict, utilities: Array, action: Array, view: View) -> Array:
        """Value `[T,B,1]` of a joint action `[T,B,N]`; without a mixer, each agent's `[T,B,N]`."""
        return pick(utilities, action)

    def weight(self, batch: Batch) -> Array:
        """Weight `[T,B,N or 1]` of each error; adds up to 1 over all devices."""
        return batch.weight.sum(-1, keepdims=True) if self.mixes else batch.weight

    def regression(
        self, q: Array, target: Array, batch: Batch, stress: Array | float = 1.0
    ) -> tuple[Array, tuple[Metrics, Array]]:
        """Weighted squared errors; `stress` scales single errors."""
        weight = self.weight(batch)
        error = q - jax.lax.stop_gradient(target)
        if self.config.hysteresis < 1:
            stress = stress * jnp.where(error > 0, self.config.hysteresis, 1.0)
        loss = (0.5 * error**2 * weight * stress * batch.importance[:, None]).sum()
        metrics = {"loss": loss, "q": (q * weight).sum(), "error": (jnp.abs(error) * weight).sum()}
        return loss, (metrics, surprise(error, weight))


def joint_action(action: Array, view: View, spec: Spec) -> Array:
    """`[T,B,N·A]` the team's joint action as a mixer reads it, zero for absent agents."""
    return (as_input(action, spec) * view.alive[..., None]).reshape(*view.first.shape, -1)


def taken(utilities: Array, action: Array, view: View) -> Array:
    """`[T,B,N]` utilities of these actions, zero for absent agents."""
    return pick(utilities, action) * view.alive

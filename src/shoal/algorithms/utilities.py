"""What learners of utilities share: the agents' nets, ε-greedy play, and one value of the team.

The value family learns them from a replay (`value.py`), PQN from the window just played (`pqn.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from typing_extensions import TypeVar

from ..learning.exploration import SCHEDULES, epsilon_greedy
from ..nets.distributions import pick
from ..nets.heads import best_action, dueling
from ..nets.inputs import STATE, Context, InputPart, as_input, gather
from ..nets.layers import Dense, Rng
from ..nets.mlp import Parts
from ..types import Clock, Decision, Discrete, Spec, View
from .base import UTILITIES, LearnerT, MemoryT, Metrics, fraction, positive
from .net_config import NetConfig
from .networked import Carry, Hidden, Networked


@dataclass(frozen=True)
class UtilityConfig(NetConfig):
    """Settings of everything that learns utilities."""

    lr: float = 1e-3
    """Learning rate."""
    activation: Literal["tanh", "relu"] = "relu"
    """Activation of the hidden layers."""
    dueling: bool = False
    """Utilities as a value plus centred advantages."""
    hysteresis: float = 1.0
    """Weight of errors that would lower a value (hysteretic Q-learning): 1 is plain, less is
    hopeful of teammates, 0 never lowers a value."""
    epsilon: float = 1.0
    """Probability of a random legal action, at the start."""
    epsilon_end: float = 0.05
    """That probability, at the end of its schedule."""
    epsilon_steps: float = 200_000
    """Environment steps over which it falls."""
    epsilon_decay: Literal["linear", "exponential"] = "linear"
    """How it falls."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive(self, "epsilon_steps")
        fraction(self, "hysteresis", "epsilon", "epsilon_end")


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

    def carry(self, games: int, rows: int) -> Hidden:
        return self.torso.carry(games, rows)


UtilityConfigT = TypeVar("UtilityConfigT", bound=UtilityConfig, default=UtilityConfig)


class Utilities(Networked[UtilityConfigT, LearnerT, MemoryT]):
    """Agents with utilities; mixers override `mixer` and `joint`."""

    acts = "agents"
    family = "value"
    prefers = UTILITIES
    spaces = (Discrete,)
    mixes: ClassVar[bool] = False  # whether utilities are mixed into one value of the team
    mixer_sees: ClassVar[tuple[InputPart, ...]] = ()  # its inputs beside the utilities

    def __init__(self, config: UtilityConfigT, spec: Spec):
        super().__init__(config, spec)
        self.inputs["mixer"] = self.mixer_sees

    @property
    def states(self) -> tuple[str, ...]:
        return ("game", "joined") if STATE in self.mixer_sees else ("game",)

    # -- nets --------------------------------------------------------------------------------------

    def nets(self, rng: Rng) -> dict[str, Any]:
        """Create the parts of the learner."""
        return {"agents": self.agents(rng), **self.mixer(rng)}

    def agents(self, rng: Rng) -> Any:
        """The net, or nets, that act."""
        return self.utility(rng)

    def utility(self, rng: Rng) -> Utility:
        outs = self.spec.action.size + self.config.dueling
        return Utility(
            self.torso(rng, "actor"), Dense(rng, self.owner, self.config.hidden, outs, gain=1.0)
        )

    def mixer(self, rng: Rng) -> dict[str, Any]:
        """Parts of the learner beside the agents' nets, such as a mixer."""
        return {}

    # -- acting ------------------------------------------------------------------------------------

    def carry(self, learner: Any, games: int) -> Carry:
        return self.initial_carry(learner.params["agents"], games)

    def act(
        self, learner: Any, key: Array, view: View, carry: Carry, clock: Clock, greedy: bool
    ) -> Decision:
        q, hidden = self.utilities(
            learner.params["agents"], self.context(learner, view, carry), carry.hidden
        )
        if greedy:
            action = self.best(q[0], view.legal)
        else:
            action = self.explore(key, self.optimistic_utilities(q[0]), view.legal, clock)
        return Decision(action, self.next_carry(hidden, action, carry), ())

    def logits(self, learner: Any, view: View, carry: Carry, clock: Clock) -> Array:
        context = self.context(learner, view, carry)
        q, _ = self.utilities(learner.params["agents"], context, carry.hidden)
        return self.mean_utilities(q)[0]

    def values(self, learner: Any, view: View, carry: Carry, clock: Clock) -> Array:
        q = self.logits(learner, view, carry, clock)
        return self.in_rewards(learner, pick(q, best_action(q, view.legal)))

    def best(self, q: Array, legal: Array) -> Array:
        """`[B,N]` greedy actions."""
        return best_action(q, legal)

    def optimistic_utilities(self, q: Array) -> Array:
        """`[B,N,A]` utilities that exploring agents act on."""
        return q

    def mean_utilities(self, q: Array) -> Array:
        """Utilities `[T,B,N,A]` that values and targets are made of."""
        return q

    def explore(self, key: Array, q: Array, legal: Array, clock: Clock) -> Array:
        """Actions to take in training."""
        return epsilon_greedy(key, best_action(q, legal), legal, self.epsilon(clock))

    def epsilon(self, clock: Clock) -> Array:
        c = self.config
        return SCHEDULES[c.epsilon_decay](c.epsilon, c.epsilon_end, c.epsilon_steps, clock.steps)

    def utilities(self, net: Any, context: Context, carry: Hidden) -> tuple[Array, Hidden]:
        """Utilities `[T,B,N,A]` at every instant of a context, and the carry after the last.

        Those of an ensemble are `[T,K,B,N,A]`.
        """
        return net(
            gather(self.inputs["actor"], context, self.spec),
            carry,
            context.view.first,
            context.view.legal,
        )

    # -- learning ----------------------------------------------------------------------------------

    def joint(self, params: dict, utilities: Array, action: Array, view: View) -> Array:
        """Value `[T,B,1]` of a joint action `[T,B,N]`; without a mixer, each agent's `[T,B,N]`."""
        return pick(utilities, action)

    def weight(self, batch: Any) -> Array:
        """Weight `[T,B,N or 1]` of each error; adds up to 1 over all devices."""
        return batch.weight.sum(-1, keepdims=True) if self.mixes else batch.weight

    def squared_errors(
        self, q: Array, target: Array, batch: Any, *factors: Array | float
    ) -> tuple[Array, Metrics, Array]:
        """The weighted squared errors, metrics, and the errors; `factors` scale single errors."""
        weight = self.weight(batch)
        error = q - jax.lax.stop_gradient(target)
        squares = 0.5 * error**2 * weight
        if self.config.hysteresis < 1:
            factors = (jnp.where(error > 0, self.config.hysteresis, 1.0), *factors)
        for factor in factors:
            squares = squares * factor
        loss = squares.sum()
        metrics = {"loss": loss, "q": (q * weight).sum(), "error": (jnp.abs(error) * weight).sum()}
        return loss, metrics, error


def joint_action(action: Array, view: View, spec: Spec) -> Array:
    """`[T,B,N·A]` the team's joint action as a mixer reads it, zero for absent agents."""
    return (as_input(action, spec) * view.alive[..., None]).reshape(*view.first.shape, -1)


def taken(utilities: Array, action: Array, view: View) -> Array:
    """`[T,B,N]` utilities of these actions, zero for absent agents."""
    return pick(utilities, action) * view.alive

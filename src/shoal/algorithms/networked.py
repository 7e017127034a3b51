"""Base of algorithms with nets: parameter sharing, inputs of each net, and the agents' carry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax.numpy as jnp
from jax import Array
from typing_extensions import TypeVar

from ..errors import ShoalError
from ..learning.optim import adam, annealed, descend
from ..learning.returns import counted, left, settle
from ..learning.trees import at
from ..nets import torsos
from ..nets.conv import Cnn, ConvEncoder
from ..nets.inputs import (
    ID,
    LAST_ACTION,
    MEAN_ACTION,
    OBS,
    STATE,
    Context,
    InputPart,
    as_input,
    width,
)
from ..nets.layers import Rng, owners
from ..nets.mlp import Style
from ..types import Clock, Spec, View
from .base import Algorithm, LearnerT, MemoryT, Metrics, at_most, fraction, positive


@dataclass(frozen=True)
class NetConfig:
    """Settings of everything that learns with nets."""

    lr: float = 5e-4
    """Learning rate of Adam."""
    anneal: bool = True
    """Let the learning rates fall linearly to 0 over the run."""
    max_grad_norm: float = 10.0
    """Norm to which the gradient of each part, such as the actor or the critic, is clipped."""
    gamma: float = 0.99
    """Discount of future rewards."""
    reward: Literal["own", "mean", "sum"] = "own"
    """What each agent learns from: its own reward, or the team's pooled by mean or sum."""
    torso: str = "mlp"
    """mlp is feed-forward; gru is recurrent, its last hidden layer a GRU behind at least one that
    is dense; <module>:<class> is one's own."""
    hidden: int = 64
    """Units per layer."""
    layers: int = 2
    """Hidden layers."""
    activation: Literal["tanh", "relu"] = "tanh"
    """Of the hidden layers."""
    layer_norm: bool = False
    """Standardise the features after each hidden layer."""
    channels: str = "16,32"
    """Images: channels of each convolution in front of the hidden layers; empty for none."""
    sharing: str = "shared"
    """Parameters: shared by all agents, own for each, or a partition such as 0,0,1."""
    agent_id: bool = True
    """Tell agents that share parameters apart by a one-hot number."""
    last_action: bool = False
    """Show the agents their previous action."""

    def __post_init__(self) -> None:
        positive(self, "lr", "max_grad_norm", "hidden", "layers")
        at_most(self, 100, "layers")
        fraction(self, "gamma")
        convolutions(self.channels)
        torsos.find(self.torso)


def convolutions(channels: str) -> tuple[int, ...]:
    """Parse the channels of each convolution."""
    words = channels.split(",") if channels else []
    if not all(word.strip().isdecimal() and len(word) < 9 and int(word) > 0 for word in words):
        raise ShoalError(f"channels must be whole numbers such as 16,32, not {channels!r:.80}")
    return tuple(map(int, words))


# a torso's carry: any pytree, every leaf [B,…]
Hidden = Any


class Carry(NamedTuple):
    """What the agents of a team carry from step to step."""

    hidden: Hidden  # carry of the acting torso
    last: Array  # [B,N,A] previous actions; width 0 if no net reads them


NetConfigT = TypeVar("NetConfigT", bound=NetConfig, default=NetConfig)


class Networked(Algorithm[NetConfigT, LearnerT, MemoryT, Carry]):
    """An algorithm whose agents have nets: their owners, inputs (`inputs`) and carry."""

    acts: ClassVar[str] = "actor"  # the part of the learner that acts
    sharing = ("shared", "own", "partition")
    recurrence = True
    inherits = ("params", "target", "scale")

    def __init__(self, config: NetConfigT, spec: Spec):
        super().__init__(config, spec)
        self._check_declared(config)
        self.owner = owners(config.sharing, spec)
        self.alike = len(set(self.owner)) < spec.n  # some agents share parameters
        self.told_apart = config.agent_id and self.alike
        parts = (
            OBS,
            *((LAST_ACTION,) if config.last_action else ()),
            *((ID,) if self.told_apart else ()),
        )
        self.inputs: dict[str, tuple[InputPart, ...]] = {"actor": parts}  # by part of the learner
        self.tx = adam(config.max_grad_norm)

    def _check_declared(self, config: NetConfig) -> None:
        """Raise an error for settings that the class does not declare to support."""
        kind = config.sharing if config.sharing in ("shared", "own") else "partition"
        if kind not in self.sharing:
            raise ShoalError(
                f"{self.name} cannot have {kind} parameters: set sharing to"
                f" {' or '.join(self.sharing)}"
            )
        if self.recurrent and not self.recurrence:
            raise ShoalError(f"{self.name} cannot be recurrent: set torso to mlp")

    @property
    def sees_state(self) -> bool:
        return any(STATE in parts for parts in self.inputs.values())

    @property
    def sees_mates(self) -> bool:
        return self.central_execution or MEAN_ACTION in self.inputs["actor"]

    @classmethod
    def remembers(cls, config: NetConfig) -> bool:
        """Whether the nets of such a config carry anything from instant to instant."""
        return torsos.find(config.torso).recurrent

    @property
    def recurrent(self) -> bool:
        return self.remembers(self.config)

    @property
    def keeps_last(self) -> bool:
        """Whether any net reads previous actions."""
        return any(
            part in (LAST_ACTION, MEAN_ACTION) for parts in self.inputs.values() for part in parts
        )

    def acting(self, learner: LearnerT) -> LearnerT:
        """The learner reduced to the net that acts."""
        whole: Any = learner  # a NamedTuple with `params` by part
        nothing = dict.fromkeys(whole._fields)
        return whole._replace(**nothing | {"params": {self.acts: whole.params[self.acts]}})

    def torso(
        self, rng: Rng, part: str, kind: str = "", owner: tuple[int, ...] = (), more: int = 0
    ) -> Any:
        """A torso for the inputs of `part`, plus `more` numbers.

        `kind` and `owner` default to those of the config.
        """
        c = self.config
        parts = self.inputs[part]
        owner = owner or self.owner
        ins = width(parts, self.spec) + more
        encoder = None
        if self.spec.pixels and OBS in parts:
            encoder = ConvEncoder(
                rng, owner, self.spec.pixels, convolutions(c.channels), c.activation
            )
            ins += encoder.size - self.spec.obs
        inner = torsos.find(kind or c.torso)(
            rng, owner, ins, c.hidden, c.layers, Style(c.activation, c.layer_norm)
        )
        return Cnn(encoder, inner, parts.index(OBS)) if encoder else inner

    def initial_carry(self, torso: Any, games: int) -> Carry:
        """The carry before the first view."""
        last = self.spec.action.size if self.keeps_last else 0
        return Carry(torso.carry(games, self.spec.n), jnp.zeros((games, self.spec.n, last)))

    def context(self, view: View, carry: Carry) -> Context:
        """The context of one instant, for acting."""
        last = carry.last * ~view.first[:, None, None]
        return at(Context(self.seen(view), last, acts=view.alive), None)

    def seen(self, view: View) -> View:
        """A view as nets read it.

        An agent truncated alone counts as alive at that instant, as its value there is needed.
        """
        return view._replace(alive=counted(view, self.config.reward)) if self.spec.leaves else view

    def next_carry(self, hidden: Hidden, action: Array, carry: Carry) -> Carry:
        """The carry after an action."""
        return Carry(hidden, as_input(action, self.spec) if self.keeps_last else carry.last)

    def acted(self, action: Array, view: View) -> Array:
        """`[…,N,A]` an action as critics read it, zero for absent agents."""
        return action * view.alive[..., None]

    def previous_actions(self, view: View, action: Array, before: Array) -> Array:
        """`[T,B,N,A]` the action before each instant: `before`, then `action`; 0 at openings."""
        if not self.keeps_last:
            return jnp.zeros((*view.alive.shape, 0))
        previous = jnp.concatenate([before, as_input(action, self.spec)])
        return previous * ~view.first[..., None, None]

    # -- learning ----------------------------------------------------------------------------------

    def settled(
        self, view: View, reward: Array, discount: Array, values: Array
    ) -> tuple[Array, Array]:
        """Rewards and discounts `[T,B,N or 1]` of a window, for values `[T+1,B,N or 1]`.

        With one row of values, the pooled reward is the same for all agents. An agent that was
        truncated alone is paid its value.
        """
        rows = values.shape[-1]
        reward = reward[..., :rows]
        discount = discount[..., :rows]
        if not self.spec.leaves:
            return reward, discount
        return settle(reward, discount, values, left(view, self.config.reward))

    def rate(self, part: str) -> float:
        """Learning rate of a part."""
        return self.config.lr

    def descended(
        self, learner: Any, parts: tuple[str, ...], grads: dict[str, Any], clock: Clock
    ) -> tuple[Any, Metrics]:
        """Take an optimiser step for these parts; also return the gradient norms."""
        rates = {
            part: annealed(self.rate(part), self.config.anneal, clock.progress) for part in parts
        }
        params, opt, norms = descend(self.tx, learner.params, learner.opt, grads, rates)
        return learner._replace(params=params, opt=opt), norms

"""An algorithm whose agents have nets: who owns the parameters, what each part sees, what is
carried along."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ..errors import ShoalError
from ..learning.returns import counted
from ..nets.conv import Cnn, ConvEncoder
from ..nets.inputs import (
    ID,
    LAST_ACTION,
    MEAN_ACTION,
    OBS,
    STATE,
    InputPart,
    Scene,
    as_input,
    width,
)
from ..nets.layers import Rng, owners
from ..nets.mlp import Style
from ..nets.torsos import TORSOS
from ..types import Spec, View
from .base import Algorithm, at_most, fraction, positive


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
    torso: Literal["mlp", "gru"] = "mlp"
    """Feed-forward, or recurrent: the last hidden layer is then a GRU, behind at least one that is
    dense."""
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


def convolutions(channels: str) -> tuple[int, ...]:
    """The channels of each convolution."""
    words = channels.split(",") if channels else []
    if not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise ShoalError(f"channels must be whole numbers such as 16,32, not {channels!r}")
    return tuple(map(int, words))


class Carry(NamedTuple):
    """What an agent remembers."""

    hidden: Array  # [B,N,H]
    last: Array  # [B,N,A] its previous action; width 0 if not asked for


class Networked(Algorithm):
    """An algorithm whose agents have nets: who owns them, what they see, what is carried from step
    to step."""

    acts: ClassVar[str] = "actor"  # the part of the learner that decides
    inherits = ("params", "target", "scale")

    def __init__(self, config: NetConfig, spec: Spec):
        super().__init__(config, spec)
        self.owner = owners(config.sharing, spec)
        self.alike = len(set(self.owner)) < spec.n  # some agents have the same parameters
        self.told_apart = config.agent_id and self.alike
        seen = (
            OBS,
            *((LAST_ACTION,) if config.last_action else ()),
            *((ID,) if self.told_apart else ()),
        )
        self.sees: dict[str, tuple[InputPart, ...]] = {"actor": seen}  # by part of the learner

    @property
    def sees_state(self) -> bool:
        return any(STATE in sees for sees in self.sees.values())

    @property
    def sees_mates(self) -> bool:
        return MEAN_ACTION in self.sees["actor"]

    @property
    def recurrent(self) -> bool:
        return self.config.torso != "mlp"

    @property
    def keeps_last(self) -> bool:
        """Does any part see what was done before?"""
        return any(see in (LAST_ACTION, MEAN_ACTION) for sees in self.sees.values() for see in sees)

    def acting(self, learner: Any) -> Any:
        """One part of the nets, as no other is asked when acting."""
        nothing = dict.fromkeys(learner._fields)
        return learner._replace(**nothing | {"params": {self.acts: learner.params[self.acts]}})

    def torso(
        self, rng: Rng, part: str, kind: str = "", owner: tuple[int, ...] = (), more: int = 0
    ) -> Any:
        """A torso for what `part` sees and `more` numbers behind it; the kind and owners the
        config's, unless told."""
        c = self.config
        sees = self.sees[part]
        owner = owner or self.owner
        ins = width(sees, self.spec) + more
        eye = None
        if self.spec.pixels and OBS in sees:
            eye = ConvEncoder(rng, owner, self.spec.pixels, convolutions(c.channels), c.activation)
            ins += eye.size - self.spec.obs
        inner = TORSOS[kind or c.torso](
            rng, owner, ins, c.hidden, c.layers, Style(c.activation, c.layer_norm)
        )
        return Cnn(eye, inner, sees.index(OBS)) if eye else inner

    def initial_carry(self, torso: Any, games: int) -> Carry:
        """What an agent with that torso remembers before its first view."""
        last = self.spec.action.size if self.keeps_last else 0
        return Carry(torso.carry(games, self.spec.n), jnp.zeros((games, self.spec.n, last)))

    def scene(self, view: View, carry: Carry) -> Scene:
        """One instant, as nets see it while acting."""
        return jax.tree.map(
            lambda x: x[None], Scene(self.seen(view), carry.last * ~view.first[:, None, None])
        )

    def seen(self, view: View) -> View:
        """A view as nets see it: who was cut short alone is there once more, for the sake of its
        value."""
        return view._replace(alive=counted(view, self.config.reward)) if self.spec.leaves else view

    def next_carry(self, hidden: Array, action: Array, carry: Carry) -> Carry:
        """What is remembered after an action."""
        return Carry(hidden, as_input(action, self.spec) if self.keeps_last else carry.last)

    def acted(self, action: Array, view: View) -> Array:
        """`[…,N,A]` an action as critics read it: an agent that is not there does nothing."""
        return action * view.alive[..., None]

    def previous_actions(self, view: View, action: Array, before: Array) -> Array:
        """`[T,B,N,A]` the action before each of these instants: `before` the first of them, then
        `action`."""
        if not self.keeps_last:
            return jnp.zeros((*view.alive.shape, 0))
        led = jnp.concatenate([before, as_input(action, self.spec)])
        return led * ~view.first[..., None, None]

"""What the loop asks of an algorithm; everything else is the algorithm's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ..nets.layers import Rng, owners
from ..nets.sees import ID, LAST_ACTION, MEAN_ACTION, OBS, STATE, Scene, See, as_input, width
from ..nets.torsos import TORSOS, Cnn, Eye, Style
from ..returns import counted
from ..types import Box, Clock, Decision, Discrete, Fit, Results, Share, ShoalError, Space, Spec, View, Window

Metrics = dict[str, Array]


class Algorithm:
    """One team's policy and how it learns."""

    name: ClassVar[str]
    Config: ClassVar[type]
    spaces: ClassVar[tuple[type[Space], ...]] = (Discrete, Box)
    sees_state: bool = False
    sees_mates: bool = False  # when acting: what other members of its team did

    def __init__(self, config: Any, spec: Spec):
        if not isinstance(spec.action, self.spaces):
            kinds = " and ".join(kind.__name__ for kind in self.spaces)
            raise ShoalError(
                f"{self.name} plays {kinds} actions, but this game's are {type(spec.action).__name__}:"
                " choose another algorithm or other actions"
            )
        self.config, self.spec = config, spec

    def join(self, team: str, everybody: dict[str, Algorithm], games: int, origin: Any) -> None:
        """Take a team's place in a run of so many games, knowing who else plays; `origin` as in the saved config."""

    def origin(self) -> Any:
        """What must be saved, as JSON, beside its config to make it again; None if its config says all."""
        return None

    def check(self, share: Share) -> None:
        """Refuse a share of the run that it could not learn from."""

    @classmethod
    def suited(cls, config: Any, share: Share) -> list[Fit]:
        """What would fit that share where the config does not, for options that nobody asked for."""
        return []

    def protocol(self, share: Share) -> dict[str, Any]:
        """What a reader of its scores must know."""
        return {"reward": "unused", "updates_per_step": 0}  # how often a step enters a gradient update

    def init(self, rng: Rng) -> Any:
        """The learner: parameters, targets, optimisers, normalisers."""
        raise NotImplementedError

    def carry(self, learner: Any, games: int) -> Any:
        """What the policy remembers before its first view."""
        raise NotImplementedError

    def act(self, learner: Any, key: Array, view: View, carry: Any, clock: Clock, greedy: bool) -> Decision:
        """Decide for every agent of every game."""
        raise NotImplementedError

    def acting(self, learner: Any) -> Any:
        """The learner without what only learning needs, for those who keep copies of it."""
        return learner

    def memory(self, learner: Any, share: Share) -> Any:
        """The empty memory."""
        raise NotImplementedError

    def remember(self, memory: Any, window: Window) -> Any:
        """Take a window in."""
        raise NotImplementedError

    def learn(self, learner: Any, memory: Any, key: Array, clock: Clock) -> tuple[Any, Any, Metrics]:
        """Update from memory."""
        raise NotImplementedError

    def meet(self, learner: Any, learners: dict[str, Any], results: Results) -> tuple[Any, Metrics]:
        """After an iteration: look at everybody's learners and results, as an opponent made of others does."""
        return learner, {}

    def keep(self, learner: Any, carry: Any) -> Any:
        """After that: what it goes on remembering of the games under way."""
        return carry


def divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is not larger."""
    return next(count for count in range(min(most, number), 0, -1) if number % count == 0)


def positive(config: Any, *fields: str) -> None:
    """Refuse settings that are not greater than 0."""
    for field in fields:
        if getattr(config, field) <= 0:
            raise ShoalError(f"{field} must be greater than 0, not {getattr(config, field)}")


def at_most(config: Any, most: int, *fields: str) -> None:
    """Refuse settings that are larger."""
    for field in fields:
        if getattr(config, field) > most:
            raise ShoalError(f"{field} must be at most {most:,}, not {getattr(config, field)}")


def not_negative(config: Any, *fields: str) -> None:
    """Refuse settings below 0."""
    for field in fields:
        if getattr(config, field) < 0:
            raise ShoalError(f"{field} must not be negative, not {getattr(config, field)}")


def fraction(config: Any, *fields: str) -> None:
    """Refuse settings that do not lie between 0 and 1."""
    for field in fields:
        if not 0 <= getattr(config, field) <= 1:
            raise ShoalError(f"{field} must lie between 0 and 1, not {getattr(config, field)}")


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
    """Feed-forward, or recurrent: the last hidden layer is then a GRU, behind at least one that is dense."""
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
    """An algorithm whose agents have nets: who owns them, what they see, what is carried from step to step."""

    acts: ClassVar[str] = "actor"  # the part of the learner that decides

    def __init__(self, config: NetConfig, spec: Spec):
        super().__init__(config, spec)
        self.owner = owners(config.sharing, spec)
        self.alike = len(set(self.owner)) < spec.n  # some agents have the same parameters
        self.told_apart = config.agent_id and self.alike
        seen = (OBS, *((LAST_ACTION,) if config.last_action else ()), *((ID,) if self.told_apart else ()))
        self.sees: dict[str, tuple[See, ...]] = {"actor": seen}  # by part of the learner

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

    def torso(self, rng: Rng, part: str, kind: str = "", owner: tuple[int, ...] = (), more: int = 0) -> Any:
        """A torso for what `part` sees and `more` numbers behind it; the kind and owners the config's, unless told."""
        c, sees, owner = self.config, self.sees[part], owner or self.owner
        ins, eye = width(sees, self.spec) + more, None
        if self.spec.pixels and OBS in sees:
            eye = Eye(rng, owner, self.spec.pixels, convolutions(c.channels), c.activation)
            ins += eye.size - self.spec.obs
        inner = TORSOS[kind or c.torso](rng, owner, ins, c.hidden, c.layers, Style(c.activation, c.layer_norm))
        return Cnn(eye, inner, sees.index(OBS)) if eye else inner

    def opening(self, torso: Any, games: int) -> Carry:
        """What an agent with that torso remembers before its first view."""
        last = self.spec.action.size if self.keeps_last else 0
        return Carry(torso.carry(games, self.spec.n), jnp.zeros((games, self.spec.n, last)))

    def scene(self, view: View, carry: Carry) -> Scene:
        """One instant, as nets see it while acting."""
        return jax.tree.map(lambda x: x[None], Scene(self.seen(view), carry.last * ~view.first[:, None, None]))

    def seen(self, view: View) -> View:
        """A view as nets see it: who was cut short alone is there once more, for the sake of its value."""
        return view._replace(alive=counted(view, self.config.reward)) if self.spec.leaves else view

    def carried(self, hidden: Array, action: Array, carry: Carry) -> Carry:
        """What is remembered after an action."""
        return Carry(hidden, as_input(action, self.spec) if self.keeps_last else carry.last)

    def acted(self, action: Array, view: View) -> Array:
        """`[…,N,A]` an action as critics read it: an agent that is not there does nothing."""
        return action * view.alive[..., None]

    def led(self, view: View, action: Array, before: Array) -> Array:
        """`[T,B,N,A]` the action before each of these instants: `before` the first of them, then `action`."""
        if not self.keeps_last:
            return jnp.zeros((*view.alive.shape, 0))
        led = jnp.concatenate([before, as_input(action, self.spec)])
        return led * ~view.first[..., None, None]

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
from ..nets import curiosity, torsos
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
    heard,
    width,
)
from ..nets.layers import Rng, owners
from ..nets.mlp import Style
from ..types import Clock, Spec, View, Window
from .base import Algorithm, LearnerT, MemoryT, Metrics, at_most, fraction, not_negative, positive
from .curiosity import PART, Drive, Motive


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
    is dense; commnet, ic3net, tarmac and transformer let agents hear each other; <module>:<class>
    is one's own."""
    rounds: int = 1
    """Torsos that communicate: rounds of messages at each instant."""
    near: float = 0.0
    """Torsos that communicate: agents hear those at most so far away; 0 is everybody."""
    position: str = ""
    """With near: which numbers of its observation are an agent's place, such as 2,3."""
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
    curiosity: str = ""
    """Bonus for what is new: rnd, icm, or <module>:<class> of one's own; empty for none."""
    curiosity_weight: float = 0.1
    """Weight of the bonus beside the reward, at the start."""
    curiosity_decay: float = 0.0
    """Share of that weight that is lost by the end of the run, linearly."""

    def __post_init__(self) -> None:
        positive(self, "lr", "max_grad_norm", "hidden", "layers", "rounds")
        at_most(self, 100, "layers", "rounds")
        fraction(self, "gamma", "curiosity_decay")
        not_negative(self, "curiosity_weight", "near")
        convolutions(self.channels)
        _check_near(self)
        if self.curiosity:
            curiosity.find(self.curiosity)


def convolutions(channels: str) -> tuple[int, ...]:
    """Parse the channels of each convolution."""
    counts = _numbers("channels", channels, "16,32")
    if 0 in counts:
        raise ShoalError(f"channels must be whole numbers such as 16,32, not {channels!r:.80}")
    return counts


def _numbers(option: str, value: str, example: str) -> tuple[int, ...]:
    """Parse whole numbers separated by commas."""
    words = value.split(",") if value else []
    if not all(word.strip().isdecimal() and len(word) < 9 for word in words):
        raise ShoalError(f"{option} must be whole numbers such as {example}, not {value!r:.80}")
    return tuple(map(int, words))


def _check_near(config: NetConfig) -> None:
    """Refuse a distance of hearing that means nothing."""
    communicates = torsos.alone(config.torso)
    place = _numbers("position", config.position, "2,3")
    if config.near and not communicates:
        raise ShoalError(
            f"near is for torsos that communicate, and {config.torso} does not: set near to 0 or"
            " torso to commnet"
        )
    if config.near and not place:
        raise ShoalError(
            "near needs to know where agents are: set position to the numbers of an observation"
            " that say so, such as 2,3"
        )


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
        # what nets read to communicate, beside their other inputs
        self.heard: tuple[InputPart, ...] = ()
        if torsos.alone(config.torso):
            self.heard = (heard(config.near, self._place()),)
        parts = (
            OBS,
            *((LAST_ACTION,) if config.last_action else ()),
            *((ID,) if self.told_apart else ()),
            *self.heard,
        )
        self.inputs: dict[str, tuple[InputPart, ...]] = {"actor": parts}  # by part of the learner
        self.tx = adam(config.max_grad_norm)
        self.drive: Drive | None = None  # curiosity, if there is any
        if config.curiosity and config.curiosity_weight:
            self.inputs[PART] = (OBS,)
            self.drive = Drive(
                config.curiosity,
                spec,
                self.owner,
                config.hidden,
                config.lr,
                config.gamma,
                config.max_grad_norm,
            )

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

    def _place(self) -> tuple[int, ...]:
        """The numbers of an observation that are an agent's place."""
        place = _numbers("position", self.config.position, "2,3")
        if place and max(place) >= self.spec.obs:
            raise ShoalError(
                f"position {self.config.position!r} lies outside this game's observations of"
                f" {self.spec.obs} numbers, counted from 0: change position"
            )
        return place

    @property
    def sees_state(self) -> bool:
        return any(STATE in parts for parts in self.inputs.values())

    @property
    def sees_mates(self) -> bool:
        central = self.central_execution or bool(self.heard)
        return central or MEAN_ACTION in self.inputs["actor"]

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
        kind = kind or c.torso
        hears = set(self.heard) <= set(parts)
        if torsos.alone(kind) and not hears:
            kind = torsos.alone(kind)
        rounds = {"rounds": c.rounds} if torsos.alone(kind) else {}
        inner = torsos.find(kind)(
            rng, owner, ins, c.hidden, c.layers, Style(c.activation, c.layer_norm), **rounds
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

    # -- curiosity ---------------------------------------------------------------------------------

    def init_curiosity(self, rng: Rng) -> Motive | tuple[()]:
        """The learner's model of curiosity; empty if it has none."""
        if self.drive is None:
            return ()
        return self.drive.init(rng, lambda: self.torso(rng, PART, "mlp"))

    def motivated(self, learner: Any, window: Window, clock: Clock) -> Window:
        """A window whose rewards include the bonus, for returns; unchanged without curiosity."""
        if self.drive is None:
            return window
        bonus = self.drive.bonus(learner.curiosity, window) * self.curiosity_weight(clock)
        reward = window.view.reward.at[1:].add(bonus)
        return window._replace(view=window.view._replace(reward=reward))

    def curiosity_weight(self, clock: Clock) -> Array:
        c = self.config
        return c.curiosity_weight * (1 - c.curiosity_decay * jnp.minimum(clock.progress, 1.0))

    def observe(
        self, learner: LearnerT, window: Window, key: Array, clock: Clock
    ) -> tuple[LearnerT, Metrics]:
        """Let curiosity learn from the window."""
        if self.drive is None:
            return learner, {}
        whole: Any = learner  # a NamedTuple
        motive, metrics = self.drive.learn(whole.curiosity, window, key)
        weight = {"curiosity_weight": self.curiosity_weight(clock)}
        return whole._replace(curiosity=motive), metrics | weight

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


def expected(out: Array, policy: Any) -> Array:
    """What a critic's outputs `[…,1 or A]` promise under a policy."""
    return out[..., 0] if out.shape[-1] == 1 else (jnp.exp(policy.log_probs) * out).sum(-1)

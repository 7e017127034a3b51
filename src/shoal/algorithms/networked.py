"""Base of algorithms with nets: parameter sharing, inputs of each net, and the agents' carry."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array
from typing_extensions import TypeVar

from ..errors import ShoalError
from ..learning.optim import OPTIMISERS, annealed, descend
from ..learning.returns import counted, left, settle
from ..learning.trees import at
from ..nets import torsos
from ..nets.conv import Cnn, ConvEncoder
from ..nets.entities import Entities, parse
from ..nets.inputs import (
    ID,
    LAST_ACTION,
    MEAN_ACTION,
    OBS,
    OTHERS_OBS,
    STATE,
    Context,
    InputPart,
    as_input,
    heard,
    mean_action,
    observed,
    width,
)
from ..nets.layers import Rng, owners
from ..nets.mlp import Style
from ..nets.one_hot import OneHot, columns
from ..types import Clock, Spec, View, Window
from .base import Algorithm, LearnerT, MemoryT, Metrics
from .curiosity import PART, Drive, Motive
from .net_config import NetConfig, convolutions, numbers
from .standardiser import Standardiser, Statistics

STATES = ("game", "joined", "agent", "pruned")  # forms of the state that a central critic may see


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
    stores_joined: ClassVar[bool] = True  # whether memories hold a state that repeats observations
    sharing = ("shared", "own", "partition")
    recurrence = True
    inherits = ("params", "target", "scale", "statistics")

    def __init__(self, config: NetConfigT, spec: Spec):
        super().__init__(config, spec)
        self._check_declared(config)
        self._check_state(config)
        if config.state == "joined":
            self.spec = replace(spec, state=spec.n * spec.obs, joined=True)
        self.entities = self._entities()
        if config.one_hot and spec.pixels:
            raise ShoalError(
                "observations here are images, which are not read one-hot: set one_hot to 0"
            )
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
        self.tx = OPTIMISERS[config.optimiser](config.max_grad_norm, config.adam_epsilon)
        self.standardiser: Standardiser | None = None  # running statistics, if there are any
        if config.normalise_obs or config.normalise_reward:
            self.standardiser = Standardiser(
                spec,
                self.owner,
                self._distances(),
                config.normalise_obs,
                config.normalise_reward,
                config.reward,
                config.gamma,
            )
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

    @property
    def states(self) -> tuple[str, ...]:
        """What `state` may be: here nothing sees one."""
        return ("game",)

    def _check_state(self, config: NetConfig) -> None:
        """Raise an error for a state that means nothing here."""
        if config.state not in self.states:
            raise ShoalError(
                f"{self.name} cannot see the state as {config.state!r}: set state to"
                f" {' or '.join(self.states)}"
            )
        if config.state == "joined" and self.spec.pixels:
            raise ShoalError(
                "observations here are images, which are not joined: set state to game or agent"
            )
        if config.state == "pruned" and not self.spec.joined:
            raise ShoalError(
                "what this game's state repeats of an observation is not known, as it is not just"
                " all observations joined: set state to agent"
            )

    def critic_inputs(self, parts: tuple[InputPart, ...]) -> tuple[InputPart, ...]:
        """Inputs of a critic, with the state as the config says; none twice."""
        others = (OTHERS_OBS,) if self.spec.n > 1 else ()
        forms = {"agent": (STATE, OBS), "pruned": (OBS, *others)}
        state = forms.get(self.config.state, (STATE,))
        found = (form for part in parts for form in (state if part is STATE else (part,)))
        return tuple(dict.fromkeys(found))

    @property
    def mean_action(self) -> InputPart:
        """What an agent's neighbours just did on average: a mean field."""
        return mean_action(self.config.near, self._place()) if self.config.near else MEAN_ACTION

    def _place(self) -> tuple[int, ...]:
        """The numbers of an observation that are an agent's place."""
        place = numbers("position", self.config.position, "2,3")
        if place and max(place) >= self.spec.obs:
            raise ShoalError(
                f"position {self.config.position!r} lies outside this game's observations of"
                f" {self.spec.obs} numbers, counted from 0: change position"
            )
        return place

    def _entities(self) -> Entities:
        """The things alike that nets read nearest first."""
        told = self.config.entities
        if told == "game" and not self.spec.entities:
            raise ShoalError(
                "this game does not say which things alike its observations list: set entities to"
                " such as 4:2x3, or to nothing"
            )
        found = parse(self.spec.entities if told == "game" else told)
        if found.last >= self.spec.obs or (found.kinds and self.spec.pixels):
            raise ShoalError(
                f"entities {told!r:.80} are not in this game's observations of {self.spec.obs}"
                " numbers, counted from 0: change entities"
            )
        return found

    def _distances(self) -> tuple[int, ...]:
        """The numbers of an observation that distances are measured by."""
        return (*(self._place() if self.config.near else ()), *self.entities.places)

    @property
    def sees_state(self) -> bool:
        return any(STATE in parts for parts in self.inputs.values())

    @property
    def joins(self) -> bool:
        """Whether the state is made of the observations, here and not by the game."""
        c = self.config
        own = not self.stores_joined or c.state == "joined" or c.normalise_obs or c.entities
        return bool(own) and self.spec.joined and self.sees_state

    @property
    def sees_mates(self) -> bool:
        return self.central_execution or any(part.mates for part in self.inputs["actor"])

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
        return any(part.last for parts in self.inputs.values() for part in parts)

    def acting(self, learner: LearnerT) -> LearnerT:
        """The learner reduced to the net that acts, and the statistics by which it reads."""
        whole: Any = learner  # a NamedTuple with `params` by part
        kept = dict.fromkeys(whole._fields) | {"params": {self.acts: whole.params[self.acts]}}
        if self.standardiser is not None:
            kept["statistics"] = whole.statistics
        return whole._replace(**kept)

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
        whole = observed(parts, self.spec) if c.one_hot and part != PART else ()
        ins += sum(parts[i].size(self.spec) for i in whole) * (columns(c.one_hot) - 1)
        inner = torsos.find(kind)(
            rng, owner, ins, c.hidden, c.layers, Style(c.activation, c.layer_norm), **rounds
        )
        if whole:
            return OneHot(inner, whole, c.one_hot)
        return Cnn(encoder, inner, parts.index(OBS)) if encoder else inner

    def initial_carry(self, torso: Any, games: int) -> Carry:
        """The carry before the first view."""
        last = self.spec.action.size if self.keeps_last else 0
        return Carry(torso.carry(games, self.spec.n), jnp.zeros((games, self.spec.n, last)))

    def context(self, learner: Any, view: View, carry: Carry) -> Context:
        """The context of one instant, for acting."""
        last = carry.last * ~view.first[:, None, None]
        view = self.standardised(learner, view)
        return at(Context(self.seen(view), last, acts=view.alive), None)

    def seen(self, view: View) -> View:
        """A view as nets read it.

        An agent truncated alone counts as alive at that instant, as its value there is needed.
        """
        if self.entities.kinds:
            view = view._replace(obs=self.entities.nearest_first(view.obs))
        view = self.with_state(view)
        return view._replace(alive=counted(view, self.config.reward)) if self.spec.leaves else view

    def with_state(self, view: View) -> View:
        """A view with the state that is made of its observations, where it is."""
        if not self.joins:
            return view
        return view._replace(state=view.obs.reshape(*view.first.shape, -1))

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

    # -- what a learner reads ----------------------------------------------------------------------

    def init_statistics(self) -> Statistics | tuple[()]:
        """The learner's running statistics; empty if it has none."""
        if self.standardiser is None:
            return ()
        apart = self.sees_state and not self.spec.joined
        return self.standardiser.init(self.spec.state if apart else 0)

    def standardised(self, learner: Any, view: View) -> View:
        """A view by the learner's statistics; unchanged without any."""
        if self.standardiser is None:
            return view
        return self.standardiser.seen(learner.statistics, view)

    def read(self, learner: Any, window: Window, clock: Clock) -> Window:
        """A window as the learner reads it: by its statistics, its rewards with their bonus."""
        view = self.standardised(learner, window.view)
        if self.standardiser is not None:
            view = self.standardiser.earned(learner.statistics, view)
        if self.drive is not None:
            bonus = self.drive.bonus(learner.curiosity, window) * self.curiosity_weight(clock)
            view = view._replace(reward=view.reward.at[1:].add(bonus))
        return window._replace(view=view)

    def in_rewards(self, learner: Any, values: Array) -> Array:
        """Values in the unit of the game's rewards."""
        if self.standardiser is None:
            return values
        return values * self.standardiser.unit(learner.statistics)

    def observe(
        self, learner: LearnerT, window: Window, key: Array, clock: Clock
    ) -> tuple[LearnerT, Metrics]:
        """Count the window in the statistics, and let curiosity learn from it."""
        whole: Any = learner  # a NamedTuple
        metrics: Metrics = {}
        if self.standardiser is not None:
            statistics, metrics = self.standardiser.count(whole.statistics, window)
            whole = whole._replace(statistics=statistics)
        if self.drive is not None:
            motive, more = self.drive.learn(whole.curiosity, window, key)
            whole = whole._replace(curiosity=motive)
            metrics |= more | {"curiosity_weight": self.curiosity_weight(clock)}
        return whole, metrics

    # -- curiosity ---------------------------------------------------------------------------------

    def init_curiosity(self, rng: Rng) -> Motive | tuple[()]:
        """The learner's model of curiosity; empty if it has none."""
        if self.drive is None:
            return ()
        return self.drive.init(rng, lambda: self.torso(rng, PART, "mlp"))

    def curiosity_weight(self, clock: Clock) -> Array:
        c = self.config
        return c.curiosity_weight * (1 - c.curiosity_decay * jnp.minimum(clock.progress, 1.0))

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

"""The records that all parts of Shoal exchange.

Axes, everywhere and in this order: `T` time, `B` games in parallel, `N` agents of a team, then `F`
features, `A` actions, `S` state, `H` hidden.

A game resets on the *next* step. The step that ends an episode returns the true final view. The
step after it ignores that game's action and returns the opening view of the next episode, with
`first = True` and reward 0. So instant `t+1` is always the true successor of instant `t`, except
over that one dummy transition, whose `valid` is 0.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

if TYPE_CHECKING:  # worker processes use these records without importing JAX
    from jax import Array


@dataclass(frozen=True)
class Discrete:
    """A space of `n` discrete actions, numbered `0 … n-1`."""

    n: int
    shape = ()  # of an action
    dtype = "int32"

    @property
    def size(self) -> int:
        """Width of an action as a net reads it, which is one-hot."""
        return self.n

    def split(self, rows: Any) -> list[Any]:
        """Split `[…,A]` by parts of an action: here there is one."""
        return [rows]


@dataclass(frozen=True)
class MultiDiscrete:
    """A space of actions of several parts; part `i` is one of `parts[i]` numbers, from 0 on."""

    parts: tuple[int, ...]
    dtype = "int32"

    @property
    def shape(self) -> tuple[int, ...]:
        """Of an action: a number for each part."""
        return (len(self.parts),)

    @property
    def size(self) -> int:
        """Width of an action as a net reads it: one-hot parts, joined."""
        return sum(self.parts)

    def split(self, rows: Any) -> list[Any]:
        """Split `[…,A]` by parts of an action."""
        ends = [sum(self.parts[: i + 1]) for i in range(len(self.parts))]
        return [rows[..., end - n : end] for end, n in zip(ends, self.parts, strict=True)]


@dataclass(frozen=True)
class Box:
    """A space of real vectors between `low` and `high`.

    Bounds are `[A]`, or `[N,A]` where the agents of a team have different ones.
    """

    low: tuple[Any, ...]
    high: tuple[Any, ...]
    dtype = "float32"

    @property
    def shape(self) -> tuple[int, ...]:
        """Of an action."""
        return (self.size,)

    @property
    def size(self) -> int:
        """Width of an action as a net reads it."""
        return len(self.of(0).low)

    def of(self, agent: int) -> Box:
        """The bounds of one agent."""
        own = any(isinstance(bound, tuple) for bound in self.low)
        return Box(self.low[agent], self.high[agent]) if own else self


def side_by_side(boxes: list[Box]) -> Box:
    """Join the boxes of a team's agents: common bounds where they agree, else one row per agent.

    Dimensions that an agent lacks get the outermost bounds of the agents that have them.
    """
    size = max(box.size for box in boxes)
    low = tuple(min(box.low[k] for box in boxes if k < box.size) for k in range(size))
    high = tuple(max(box.high[k] for box in boxes if k < box.size) for k in range(size))
    rows = [(box.low + low[box.size :], box.high + high[box.size :]) for box in boxes]
    if all(row == (low, high) for row in rows):
        return Box(low, high)
    return Box(tuple(row[0] for row in rows), tuple(row[1] for row in rows))


Space = Discrete | MultiDiscrete | Box


@dataclass(frozen=True)
class Spec:
    """Shapes and spaces of one team. Agents of different sizes are padded to the widest."""

    agents: tuple[str, ...]
    obs: int
    state: int
    action: Space
    obs_sizes: tuple[int, ...] = ()  # size of each agent, where sizes differ
    action_sizes: tuple[int, ...] = ()
    rivals: int = 0  # width of the other teams' joint action, as a net reads it
    # (H,W,C) where observations are uint8 images, each flattened into one row of H·W·C
    pixels: tuple[int, ...] = ()
    # the state is this team's observations joined, so it need not be stored
    joined: bool = False
    # an agent may be truncated alone, while others play on
    leaves: bool = field(default=False, compare=False)
    # things alike that an observation lists (`nets/entities.py`), if the game says so
    entities: str = field(default="", compare=False)

    @property
    def n(self) -> int:
        return len(self.agents)

    def to_json(self) -> dict[str, Any]:
        """Convert to plain JSON values; tuples become lists."""
        return json.loads(
            json.dumps(asdict(self) | {"action": {type(self.action).__name__: asdict(self.action)}})
        )

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Spec:
        """Restore a `Spec` from what `to_json` returned."""
        ((kind, bounds),) = plain["action"].items()
        action = {kind.__name__: kind for kind in (Discrete, MultiDiscrete, Box)}[kind](
            **_tuples(bounds)
        )
        fields: dict[str, Any] = {**_tuples(plain), "action": action}
        return cls(**fields)


def line_up(teams: dict[str, Spec], joined: bool) -> dict[str, Spec]:
    """Fill in the fields of each team that depend on all teams: `rivals` and `joined`.

    The argument `joined` says that the state is all observations joined.
    """
    widths = {team: spec.n * spec.action.size for team, spec in teams.items()}
    alone = joined and len(teams) == 1
    return {
        team: replace(
            spec,
            rivals=sum(widths.values()) - widths[team],
            # a state with pixels is not just joined observations: it has them scaled
            joined=alone and spec.state == spec.n * spec.obs and not spec.pixels,
        )
        for team, spec in teams.items()
    }


def _tuples(plain: dict[str, Any]) -> dict[str, Any]:
    return {name: _tuple(value) for name, value in plain.items()}


def _tuple(value: Any) -> Any:
    """Turn nested lists into nested tuples."""
    return tuple(map(_tuple, value)) if isinstance(value, list | tuple) else value


class View(NamedTuple):
    """What one team receives at one instant."""

    obs: Array  # [B,N,F]
    state: Array  # [B,S]
    # [B,N,A] bool: actions allowed (Discrete, MultiDiscrete part by part), dimensions in use (Box)
    legal: Array
    alive: Array  # [B,N] bool: present and may act
    first: Array  # [B] bool: this instant opens an episode
    reward: Array  # [B,N] earned by the step that led here
    # [B,N] 0 where the task ended with that step, else 1, also where only time ran out
    discount: Array

    @property
    def cut(self) -> Array:
        """`[B,N]` bool: agents truncated alone at this instant, while the game goes on.

        Such an agent is not alive, but its observation is its last one and its value counts. At
        later instants of the episode its discount is 0, like that of any dead agent.
        """
        return ~self.alive & (self.discount > 0)


class Decision(NamedTuple):
    """A policy's answer to a view."""

    # [B,N] int (Discrete), [B,N,P] int (MultiDiscrete) or [B,N,A] float (Box)
    action: Array
    carry: Any  # what the policy remembers: a pytree of [B,…], opaque to the loop
    record: Any  # what the policy wants back unchanged when it learns


class Window(NamedTuple):
    """T transitions of one team: instants 0…T of the view stream and the decisions at 0…T-1."""

    view: View  # every field [T+1,B,…]
    action: Array  # [T,B,N] or [T,B,N,A]
    record: Any  # [T,B,…]
    carry: Any  # [B,…] the policy's carry at instant 0
    carry_end: Any  # [B,…] the policy's carry at instant T
    rivals: Any = ()  # [T,B,M] the other teams' actions, as nets read them

    @property
    def valid(self) -> Array:
        """`[T,B,1]` 0 on the dummy transition to an opening view, else 1."""
        return ~self.view.first[1:, :, None]

    @property
    def weight(self) -> Array:
        """`[T,B,N]` 1 where the agent is alive and the transition is valid, else 0."""
        return (self.valid & self.view.alive[:-1]).astype("float32")

    @property
    def reward(self) -> Array:
        """`[T,B,N]` reward of each transition."""
        return self.view.reward[1:]

    @property
    def discount(self) -> Array:
        """`[T,B,N]` discount of each transition."""
        return self.view.discount[1:]


class Results(NamedTuple):
    """Which episodes of a window ended, with what returns and metrics."""

    ended: Array  # a new episode opens at this step: the one before has ended
    # [T,B] by team: return of the episode that ended there, averaged over the agents
    returns: dict[str, Array]
    # [T,B] by name: the environment's own metrics of that episode (`envs/metrics.py`)
    metrics: dict[str, Array] = {}


class Share(NamedTuple):
    """The part of a run that falls to one device."""

    games: int
    window: int  # steps of each game per iteration
    devices: int = 1  # number of devices with such a share
    steps: int = 2**32 - 1  # environment steps of the whole run


class Fit(NamedTuple):
    """A value for an option whose default does not fit the run."""

    option: str
    value: int
    to: str  # what the value must fit, in words


class TeamProtocol(TypedDict):
    """Facts of training that a reader of a team's scores needs."""

    reward: str  # which reward an agent learns from: own, mean or sum; unused if nothing learns
    updates_per_step: float  # how often each step enters a gradient update


class Clock(NamedTuple):
    """Training progress, for schedules."""

    steps: Array  # [] float32 valid environment steps so far
    progress: Array  # [] float32 steps as a fraction of the run


class TrainState(NamedTuple):
    """Everything that determines the rest of a run. A checkpoint is exactly this pytree."""

    game: Any  # state of the games
    views: dict[str, View]  # current view of each team
    carries: dict[str, Any]  # carry of each team's policy
    learners: dict[str, Any]  # parameters, targets, optimisers, normalisers
    memories: dict[str, Any]  # each team's Rollout or Replay
    # [B,N] by team: each agent's return so far in its episode; for large teams the mean, [B,1]
    earned: dict[str, Array]
    key: Array
    steps: Array  # [] uint32 valid environment steps so far

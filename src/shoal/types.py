"""The records every part of Shoal speaks in.

Axes, everywhere and in this order: `T` time, `B` games in parallel, `N` agents of a team, then `F`
features, `A` actions, `S` state, `H` hidden.

The stream never lies about succession. A game resets on the *next* step: the step that ends an
episode returns the true final view; the following step ignores the action of that game and returns
the opening view with `first = True` and reward 0. So instant `t+1` is always the true successor of
instant `t`, except over that one dummy transition, whose `valid` is 0.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

if TYPE_CHECKING:  # the processes that run environments speak these records without waiting for JAX
    from jax import Array


@dataclass(frozen=True)
class Discrete:
    """Actions `0 … n-1`."""

    n: int

    @property
    def size(self) -> int:
        """Width of an action as a net reads it: one-hot."""
        return self.n


@dataclass(frozen=True)
class Box:
    """Real vectors between `low` and `high`, `[A]`; `[N,A]` where the agents of a team have bounds
    of their own."""

    low: tuple[Any, ...]
    high: tuple[Any, ...]

    @property
    def size(self) -> int:
        """Width of an action as a net reads it."""
        return len(self.of(0).low)

    def of(self, agent: int) -> Box:
        """The bounds of one agent."""
        own = any(isinstance(bound, tuple) for bound in self.low)
        return Box(self.low[agent], self.high[agent]) if own else self


def side_by_side(boxes: list[Box]) -> Box:
    """The Box of a team whose agents have these: common bounds where they agree, else each its own.

    Dimensions that an agent does not have are given the outermost bounds of those who do.
    """
    size = max(box.size for box in boxes)
    low = tuple(min(box.low[k] for box in boxes if k < box.size) for k in range(size))
    high = tuple(max(box.high[k] for box in boxes if k < box.size) for k in range(size))
    rows = [(box.low + low[box.size :], box.high + high[box.size :]) for box in boxes]
    if all(row == (low, high) for row in rows):
        return Box(low, high)
    return Box(tuple(row[0] for row in rows), tuple(row[1] for row in rows))


Space = Discrete | Box


@dataclass(frozen=True)
class Spec:
    """One team as the game promises it. Agents of different sizes are padded to the widest."""

    agents: tuple[str, ...]
    obs: int
    state: int
    action: Space
    obs_sizes: tuple[int, ...] = ()  # each agent's own size, where they differ
    action_sizes: tuple[int, ...] = ()
    rivals: int = 0  # width of the other teams' actions, all together, as a net reads them
    # (H,W,C) of observations that are images of bytes, laid out as one row of H·W·C
    pixels: tuple[int, ...] = ()
    # the state is just this team's observations side by side: nobody need keep it
    joined: bool = False
    # agents may be cut short alone, while others play on
    leaves: bool = field(default=False, compare=False)

    @property
    def n(self) -> int:
        return len(self.agents)

    def to_json(self) -> dict[str, Any]:
        """As plain JSON values, with lists for tuples."""
        return json.loads(
            json.dumps(asdict(self) | {"action": {type(self.action).__name__: asdict(self.action)}})
        )

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Spec:
        """What `to_json` gave, also after it was written and read."""
        ((kind, bounds),) = plain["action"].items()
        action = {"Discrete": Discrete, "Box": Box}[kind](**_tuples(bounds))
        fields: dict[str, Any] = {**_tuples(plain), "action": action}
        return cls(**fields)


def line_up(teams: dict[str, Spec], joined: bool) -> dict[str, Spec]:
    """The teams, each with what follows from all of them; `joined`: the state is all observations
    joined."""
    widths = {team: spec.n * spec.action.size for team, spec in teams.items()}
    alone = joined and len(teams) == 1
    return {
        team: replace(
            spec,
            rivals=sum(widths.values()) - widths[team],
            # pixels are scaled in the state
            joined=alone and spec.state == spec.n * spec.obs and not spec.pixels,
        )
        for team, spec in teams.items()
    }


def _tuples(plain: dict[str, Any]) -> dict[str, Any]:
    return {name: _tuple(value) for name, value in plain.items()}


def _tuple(value: Any) -> Any:
    """Lists within lists as tuples within tuples."""
    return tuple(map(_tuple, value)) if isinstance(value, list | tuple) else value


class View(NamedTuple):
    """What one team receives at one instant."""

    obs: Array  # [B,N,F]
    state: Array  # [B,S]
    legal: Array  # [B,N,A] bool: actions allowed (Discrete), dimensions in use (Box)
    alive: Array  # [B,N] bool: present and may act
    first: Array  # [B] bool: this instant opens an episode
    reward: Array  # [B,N] earned by the step that led here
    # [B,N] 0 where the task ended with that step, 1 elsewhere, also where only time ran out
    discount: Array

    @property
    def cut(self) -> Array:
        """[B,N] bool: cut short alone at this instant. What the agent observes is its last
        observation, and its value there counts.

        At later instants of the episode its discount is 0, as that of all the dead is.
        """
        return ~self.alive & (self.discount > 0)


class Decision(NamedTuple):
    """What a policy answers to a view."""

    action: Array  # [B,N] int (Discrete) or [B,N,A] float (Box)
    carry: Any  # what the policy remembers: a pytree of [B,…], opaque to the loop
    record: Any  # what the learner wants back verbatim


class Window(NamedTuple):
    """T transitions of one team: instants 0…T of the view stream and the decisions at 0…T-1."""

    view: View  # every field [T+1,B,…]
    action: Array  # [T,B,N] or [T,B,N,A]
    record: Any  # [T,B,…]
    carry: Any  # [B,…] the policy's carry at instant 0
    carry_end: Any  # [B,…] and at instant T
    rivals: Any = ()  # [T,B,M] the other teams' actions, as nets read them

    @property
    def valid(self) -> Array:
        """[T,B,1] 0 on the dummy transition that leads to an opening view."""
        return ~self.view.first[1:, :, None]

    @property
    def weight(self) -> Array:
        """[T,B,N] 1 where a living agent's action led somewhere."""
        return (self.valid & self.view.alive[:-1]).astype("float32")

    @property
    def reward(self) -> Array:
        """[T,B,N] what each transition earned."""
        return self.view.reward[1:]

    @property
    def discount(self) -> Array:
        """[T,B,N] of each transition."""
        return self.view.discount[1:]


class Results(NamedTuple):
    """How the episodes of a window ended."""

    ended: Array  # [T,B] bool: this step opened a new episode, the one before it had ended
    # [T,B] by team: one agent's mean return of the episode that ended there
    returns: dict[str, Array]
    # [T,B] by name: what the environment says of it (`envs/metrics.py`)
    metrics: dict[str, Array] = {}


class Share(NamedTuple):
    """The part of a run that falls to one device."""

    games: int
    window: int  # steps of each game per iteration
    devices: int = 1  # that have such a part
    steps: int = 2**32 - 1  # of the whole run


class Fit(NamedTuple):
    """A value that fits a run where an option's does not."""

    option: str
    value: int
    to: str  # what it must fit, in words


class TeamProtocol(TypedDict):
    """What a reader of a team's scores must know."""

    reward: str  # what each agent learns from: own, mean, sum; unused where nobody learns
    updates_per_step: float  # how often a step enters a gradient update


class Clock(NamedTuple):
    """How far training has come, for schedules."""

    steps: Array  # [] float32 valid environment steps so far
    progress: Array  # [] float32 the same as a fraction of the run


class TrainState(NamedTuple):
    """Everything that decides the future. A checkpoint is exactly this pytree."""

    game: Any  # the games' own states
    views: dict[str, View]  # what each team sees now
    carries: dict[str, Any]  # what each team's policy remembers
    learners: dict[str, Any]  # parameters, targets, optimisers, normalisers
    memories: dict[str, Any]  # each team's Rollout or Replay
    # [B,N] by team: each agent's return so far in its episode; of large teams the mean, [B,1]
    earned: dict[str, Array]
    key: Array
    steps: Array  # [] uint32 valid environment steps so far

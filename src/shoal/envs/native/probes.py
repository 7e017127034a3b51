"""Tiny games that every fitting algorithm must solve, each holding one ability to the test."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ...render import Disc, Scene, Text
from ...types import Box, Discrete, MultiDiscrete, Space, Spec
from ..game import CROWD, Game, at_least


@dataclass(frozen=True)
class Tiny(Game):
    """Base of the probes: one team of equal agents."""

    n: int = 2
    """agents of the team"""
    length: int = 10
    """steps per episode"""

    def __post_init__(self) -> None:
        at_least(1, CROWD, n=self.n)
        at_least(1, length=self.length)

    @property
    def limit(self) -> int:
        return self.length

    def _team(self, obs: int, action: Space) -> dict[str, Spec]:
        return {
            "agent": Spec(tuple(f"agent_{i}" for i in range(self.n)), obs, self.n * obs, action)
        }

    def scene(self, world: Any, actions: dict[str, np.ndarray]) -> Scene:
        """Draw each agent with its action, its reward and what it sees now."""
        one = jax.tree.map(lambda leaf: jnp.asarray(leaf)[..., None], world)
        seen = self.observe(one)["agent"][..., 0]
        earned = self.reward(one)["agent"][:, 0]
        alive = self.alive(one)
        shapes: list = []
        for i in range(self.n):
            living = 1.0 if alive is None or alive["agent"][i, 0] else 0.25
            did = np.ravel(actions["agent"][i]).tolist() if actions else []
            answer = ", ".join(f"{value:.2g}" for value in did)
            shapes.append(
                Disc((i + 0.5, 0), 0.3, "agent", answer or "?", f"agent_{i}", alpha=living)
            )
            sees = " ".join(f"{value:.2g}" for value in seen[i].tolist())
            shapes += [
                Text((i + 0.5, 0.55), f"agent_{i}", 14, "ink", True),
                Text((i + 0.5, -0.45), sees, 12, "soft"),
            ]
            if did:
                paid = float(earned[i])
                shapes.append(
                    Text((i + 0.5, -0.62), f"earned {paid:.3g}", 13, "goal" if paid > 0 else "soft")
                )
        return Scene(shapes, (-0.1, -0.85), (self.n + 0.1, 0.85))


class Quiz(NamedTuple):
    """State of a game that asks each agent a question."""

    cue: Array  # [N,B], or [N,P,B] for the parts of an action
    earned: Array  # [N,B] reward of the last answer


@dataclass(frozen=True)
class Identity(Tiny):
    """Each agent sees a one-hot cue and earns 1 for the action of that number."""

    actions: int = 4
    """actions, and as many cues"""

    name = "test/identity"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, actions=self.actions)

    @cached_property
    def teams(self) -> dict[str, Spec]:
        return self._team(self.actions, Discrete(self.actions))

    def start(self, key: Array, games: int) -> Quiz:
        cue = jax.random.randint(key, (self.n, games), 0, self.actions)
        return Quiz(cue, jnp.zeros((self.n, games)))

    def advance(self, key: Array, world: Quiz, actions: dict[str, Array]) -> Quiz:
        cue = jax.random.randint(key, world.cue.shape, 0, self.actions)
        return Quiz(cue, (actions["agent"] == world.cue).astype(jnp.float32))

    def observe(self, world: Quiz) -> dict[str, Array]:
        return {"agent": _one_hot(world.cue, self.actions)}

    def reward(self, world: Quiz) -> dict[str, Array]:
        return {"agent": world.earned}


@dataclass(frozen=True)
class FactoredIdentity(Tiny):
    """Each agent sees several one-hot cues, answers them with the parts of one action, and earns
    the share that is right."""

    parts: int = 6
    """parts of an action, and as many cues"""
    actions: int = 5
    """values of each part; the combinations are too many to list"""

    name = "test/factored_identity"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, parts=self.parts, actions=self.actions)

    @cached_property
    def teams(self) -> dict[str, Spec]:
        return self._team(self.parts * self.actions, MultiDiscrete((self.actions,) * self.parts))

    def start(self, key: Array, games: int) -> Quiz:
        cue = jax.random.randint(key, (self.n, self.parts, games), 0, self.actions)
        return Quiz(cue, jnp.zeros((self.n, games)))

    def advance(self, key: Array, world: Quiz, actions: dict[str, Array]) -> Quiz:
        cue = jax.random.randint(key, world.cue.shape, 0, self.actions)
        return Quiz(cue, (actions["agent"] == world.cue).mean(1))

    def observe(self, world: Quiz) -> dict[str, Array]:
        shown = jax.nn.one_hot(world.cue, self.actions, axis=2)
        return {"agent": shown.reshape(self.n, -1, world.cue.shape[-1])}

    def reward(self, world: Quiz) -> dict[str, Array]:
        return {"agent": world.earned}


@dataclass(frozen=True)
class ContinuousIdentity(Tiny):
    """Each agent sees a number in [-1, 1] and pays the squared distance of its action from it."""

    name = "test/continuous_identity"

    @cached_property
    def teams(self) -> dict[str, Spec]:
        return self._team(1, Box((-1.0,), (1.0,)))

    def start(self, key: Array, games: int) -> Quiz:
        cue = jax.random.uniform(key, (self.n, games), minval=-1.0)
        return Quiz(cue, jnp.zeros((self.n, games)))

    def advance(self, key: Array, world: Quiz, actions: dict[str, Array]) -> Quiz:
        answer = actions["agent"][:, 0].clip(-1.0, 1.0)
        cue = jax.random.uniform(key, world.cue.shape, minval=-1.0)
        return Quiz(cue, -jnp.square(answer - world.cue))

    def observe(self, world: Quiz) -> dict[str, Array]:
        return {"agent": world.cue[:, None]}

    def reward(self, world: Quiz) -> dict[str, Array]:
        return {"agent": world.earned}


class Story(NamedTuple):
    """State of a game that depends on time."""

    cue: Array  # [N,B]
    time: Array  # [B] int32
    earned: Array  # [N,B] reward of the last step


@dataclass(frozen=True)
class Memory(Tiny):
    """A cue shown at the first instant only must be answered with the last step, which ends the
    game."""

    length: int = 4
    """steps per episode"""
    actions: int = 2
    """actions, and as many cues"""

    name = "test/memory"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, actions=self.actions)

    @cached_property
    def teams(self) -> dict[str, Spec]:
        return self._team(self.actions + 1, Discrete(self.actions))

    def start(self, key: Array, games: int) -> Story:
        cue = jax.random.randint(key, (self.n, games), 0, self.actions)
        return Story(cue, jnp.zeros(games, jnp.int32), jnp.zeros((self.n, games)))

    def advance(self, key: Array, world: Story, actions: dict[str, Array]) -> Story:
        time = world.time + 1
        return world._replace(
            time=time,
            earned=jnp.where((time == self.length) & (actions["agent"] == world.cue), 1.0, 0.0),
        )

    def observe(self, world: Story) -> dict[str, Array]:
        cue = jnp.where(world.time == 0, _one_hot(world.cue, self.actions), 0.0)
        now = jnp.broadcast_to(world.time == self.length - 1, (self.n, 1, world.time.shape[0]))
        return {"agent": jnp.concatenate([cue, now.astype(jnp.float32)], axis=1)}

    def reward(self, world: Story) -> dict[str, Array]:
        return {"agent": world.earned}

    def terminal(self, world: Story, clock: Array) -> Array:
        return clock >= self.length


@dataclass(frozen=True)
class Endless(Tiny):
    """Reward 1 at every step and only a time limit: the value of any policy is 1 / (1 - γ)."""

    name = "test/endless"

    @cached_property
    def teams(self) -> dict[str, Spec]:
        return self._team(1, Discrete(2))

    def start(self, key: Array, games: int) -> Array:
        return jnp.ones((self.n, games))

    def advance(self, key: Array, world: Array, actions: dict[str, Array]) -> Array:
        return world

    def observe(self, world: Array) -> dict[str, Array]:
        return {"agent": world[:, None]}

    def reward(self, world: Array) -> dict[str, Array]:
        return {"agent": world}


class Life(NamedTuple):
    """State of a game whose agents die one after another."""

    cue: Array  # [N,B] int32 at the opening; it advances by one each step
    time: Array  # [B] int32
    legacy: Array  # [B] 1 if agent_0's first answer was right
    earned: Array  # [B] reward of the last step


@dataclass(frozen=True)
class Mortal(Tiny):
    """Agents die in turn and the team plays on.

    Agent i lives for its share of the episode and earns the team 1/n per right answer. The first
    answer of agent_0 pays 1 more with the last step, long after its death. At odd times a cue
    leaves no choice, at even times one wrong action is illegal; the dead may only pass with action
    0.
    """

    n: int = 3
    """agents of the team"""
    length: int = 6
    """steps per episode"""

    name = "test/mortal"
    actions = 3

    @cached_property
    def teams(self) -> dict[str, Spec]:
        return self._team(self.actions + 1, Discrete(self.actions))

    def start(self, key: Array, games: int) -> Life:
        cue = jax.random.randint(key, (self.n, games), 0, self.actions)
        return Life(cue, jnp.zeros(games, jnp.int32), jnp.zeros(games), jnp.zeros(games))

    def advance(self, key: Array, world: Life, actions: dict[str, Array]) -> Life:
        right = (actions["agent"] == self._cue(world)) & self.alive(world)["agent"]
        legacy = jnp.where(world.time == 0, right[0], world.legacy)
        last = world.time + 1 == self.length
        return Life(world.cue, world.time + 1, legacy, right.mean(0) + jnp.where(last, legacy, 0.0))

    def observe(self, world: Life) -> dict[str, Array]:
        time = jnp.broadcast_to(world.time / self.length, (self.n, 1, world.time.shape[0]))
        seen = jnp.concatenate([_one_hot(self._cue(world), self.actions), time], axis=1)
        return {"agent": jnp.where(self.alive(world)["agent"][:, None], seen, 0.0)}

    def reward(self, world: Life) -> dict[str, Array]:
        return {"agent": jnp.broadcast_to(world.earned, world.cue.shape)}

    def terminal(self, world: Life, clock: Array) -> Array:
        return clock >= self.length

    def alive(self, world: Life) -> dict[str, Array]:
        death = -(-self.length * np.arange(1, self.n + 1) // self.n)
        return {"agent": world.time < death[:, None]}

    def legal(self, world: Life) -> dict[str, Array]:
        cue = self._cue(world)
        forced = _one_hot(cue, self.actions) > 0
        free = _one_hot((cue + 1) % self.actions, self.actions) == 0
        passing = _one_hot(jnp.zeros_like(cue), self.actions) > 0
        choice = jnp.where(world.time % 2 == 1, forced, free)
        return {"agent": jnp.where(self.alive(world)["agent"][:, None], choice, passing)}

    def _cue(self, world: Life) -> Array:
        return (world.cue + world.time) % self.actions


class Walk(NamedTuple):
    """State of a game of corridors."""

    place: Array  # [N,B] int32 cells from the start


@dataclass(frozen=True)
class Corridor(Tiny):
    """Each agent walks a corridor of its own; all earn 1 once everybody is at the far end.

    In each cell one action leads on and every other leads back; which one it is changes from cell
    to cell. An agent at the end waits there. Nothing else is ever earned.
    """

    length: int = 80
    """steps per episode"""
    cells: int = 20
    """steps from the start to the end"""
    actions: int = 4
    """actions"""

    name = "test/corridor"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, cells=self.cells)
        at_least(2, actions=self.actions)

    @cached_property
    def teams(self) -> dict[str, Spec]:
        return self._team(self.cells + 1, Discrete(self.actions))

    @cached_property
    def onward(self) -> np.ndarray:
        """`[cells]` the action that leads on from each cell."""
        return np.random.default_rng(0).integers(self.actions, size=self.cells)

    def start(self, key: Array, games: int) -> Walk:
        return Walk(jnp.zeros((self.n, games), jnp.int32))

    def advance(self, key: Array, world: Walk, actions: dict[str, Array]) -> Walk:
        there = world.place == self.cells
        right = actions["agent"] == jnp.asarray(self.onward)[world.place]
        place = jnp.maximum(world.place + jnp.where(right, 1, -1), 0)
        return Walk(jnp.where(there, world.place, place))

    def observe(self, world: Walk) -> dict[str, Array]:
        return {"agent": _one_hot(world.place, self.cells + 1)}

    def reward(self, world: Walk) -> dict[str, Array]:
        arrived = (world.place == self.cells).all(0)
        return {"agent": jnp.broadcast_to(arrived, world.place.shape).astype(jnp.float32)}

    def terminal(self, world: Walk, clock: Array) -> Array:
        return (world.place == self.cells).all(0)


def _one_hot(index: Array, n: int) -> Array:
    """One-hot `[N,n,B]` from `[N,B]`."""
    return (index[:, None] == jnp.arange(n)[:, None]).astype(jnp.float32)

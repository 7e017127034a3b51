"""The particle world that all MPE games share: bodies, motion, contact, speech and sight.

A scenario lists its bodies, and everything here follows from that list. Arrays keep the games axis
`B` last, so that a step is a few fused loops over contiguous memory. Parity with the `mpe2` package
is tested step by step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ....errors import ShoalError
from ....render import Disc, Line, Patch, Scene
from ....types import Box, Discrete, Spec
from ...game import CROWD, Game, at_least, within

MOVES = 5  # stay, left, right, down, up
STEP = 0.1  # seconds of simulated time
DAMPING = 0.25  # share of the velocity lost in a step
STIFFNESS = 100.0  # force per unit of penetration
SOFTNESS = 1e-3  # distance over which contact force fades in


class Agent(NamedTuple):
    """One agent, as a scenario describes it."""

    name: str
    team: str
    obs: int  # size of its observation
    size: float = 0.05
    accel: float = 5.0  # force of a full push; 0 if it cannot move
    max_speed: float = np.inf
    collides: bool = False
    words: int = 0  # size of its vocabulary; 0 if it cannot speak


class Landmark(NamedTuple):
    """One landmark, as a scenario describes it."""

    size: float = 0.05
    collides: bool = False
    reach: float = 1.0  # it starts within ±reach in both coordinates
    # colour in the picture; by default that of an obstacle if it collides, else of a landmark
    look: str = ""


class ParticleWorld(NamedTuple):
    """State of an MPE game."""

    pos: Array  # [N,2,B] positions of the agents
    vel: Array  # [N,2,B] their velocities
    fixed: Array  # [L,2,B] positions of the landmarks
    goal: Array  # [G,B] int32 landmarks picked as goals at the start
    word: Array  # [W,B] what was last said, all speakers' vocabularies joined


@dataclass(frozen=True)
class Particles(Game):
    """Base of the MPE games: a scenario lists its bodies, and defines observations and rewards."""

    max_cycles: int = 25
    """steps until time runs out"""
    continuous_actions: bool = False
    """push and speak with real numbers in [0, 1] instead of choosing one action"""

    goals = 0  # number of landmarks picked as goals at the start

    def __post_init__(self) -> None:
        at_least(1, max_cycles=self.max_cycles)

    @cached_property
    def agents(self) -> tuple[Agent, ...]:
        """The agents in mpe2's order: adversaries first."""
        raise NotImplementedError

    @cached_property
    def landmarks(self) -> tuple[Landmark, ...]:
        """The landmarks in mpe2's order."""
        raise NotImplementedError

    @property
    def limit(self) -> int:
        return self.max_cycles

    @cached_property
    def teams(self) -> dict[str, Spec]:
        teams = {}
        for team in dict.fromkeys(agent.team for agent in self.agents):
            members = [agent for agent in self.agents if agent.team == team]
            widths = tuple(self._width(agent) for agent in members)
            widest = max(widths)
            teams[team] = Spec(
                agents=tuple(agent.name for agent in members),
                obs=max(agent.obs for agent in members),
                state=sum(agent.obs for agent in self.agents),
                action=Box((0.0,) * widest, (1.0,) * widest)
                if self.continuous_actions
                else Discrete(widest),
                obs_sizes=tuple(agent.obs for agent in members),
                action_sizes=widths,
            )
        return teams

    def _width(self, agent: Agent) -> int:
        if self.continuous_actions:
            return (MOVES if agent.accel else 0) + agent.words
        return (MOVES if agent.accel else 1) * (agent.words or 1)

    def start(self, key: Array, games: int) -> ParticleWorld:
        key_place, key_goal = jax.random.split(key)
        reach = np.array(
            [1.0] * len(self.agents) + [thing.reach for thing in self.landmarks], np.float32
        )
        places = (
            jax.random.uniform(key_place, (len(reach), 2, games), minval=-1.0)
            * reach[:, None, None]
        )
        pos, fixed = jnp.split(places, [len(self.agents)])
        goal = jax.random.randint(key_goal, (self.goals, games), 0, max(len(self.landmarks), 1))
        word = jnp.zeros((sum(agent.words for agent in self.agents), games))
        return ParticleWorld(pos, jnp.zeros_like(pos), fixed, goal, word)

    def advance(self, key: Array, world: ParticleWorld, actions: dict[str, Array]) -> ParticleWorld:
        pos = world.pos + world.vel * STEP
        vel = world.vel * (1.0 - DAMPING) + (self._push(actions) + self._contact(world)) * STEP
        return world._replace(pos=pos, vel=self._brake(vel), word=self._speech(actions, world.word))

    def _push(self, actions: dict[str, Array]) -> Array | float:
        """`[N,2,B]` force of each agent's own action."""
        accel = np.array([agent.accel for agent in self.agents], np.float32)[:, None, None]
        if not accel.any():
            return 0.0
        if self.continuous_actions:
            move = jnp.concatenate([actions[team][:, :MOVES] for team in self.teams]).clip(0.0, 1.0)
            return (move[:, 2::2] - move[:, 1::2]) * accel
        move = jnp.concatenate([actions[team] for team in self.teams])[:, None] % MOVES
        back = np.array([1, 3])[:, None]
        return jnp.where(move == back + 1, accel, 0.0) - jnp.where(move == back, accel, 0.0)

    def _contact(self, world: ParticleWorld) -> Array | float:
        """`[N,2,B]` contact force on each agent."""
        if not any(agent.collides for agent in self.agents):
            return 0.0
        blocks = [i for i, thing in enumerate(self.landmarks) if thing.collides]
        others = jnp.concatenate([world.pos] + [world.fixed[i : i + 1] for i in blocks])
        sizes = np.array(
            [body.size for body in (*self.agents, *(self.landmarks[i] for i in blocks))], np.float32
        )
        reach = (sizes[: len(self.agents), None] + sizes)[..., None]
        # An agent has distance 1 from itself: far from contact, and never a division by zero.
        itself = np.eye(*reach.shape[:2], dtype=np.float32)[..., None]
        away = world.pos[:, None] - others
        distance = length(away) + itself
        depth = jax.nn.softplus((reach - distance) / SOFTNESS) * SOFTNESS
        force = away * (STIFFNESS * depth / distance)[:, :, None]
        # Added up one by one, which XLA fuses; a reduction over this axis takes twice the time of
        # the whole step.
        return reduce(jnp.add, (force[:, j] for j in range(len(sizes))))

    def _brake(self, vel: Array) -> Array:
        """Limit velocities to each agent's top speed."""
        top = np.array([agent.max_speed for agent in self.agents], np.float32)[:, None, None]
        if np.isinf(top).all():
            return vel
        return vel * jnp.minimum(1.0, top / jnp.sqrt(jnp.square(vel).sum(1, keepdims=True)))

    def _speech(self, actions: dict[str, Array], silence: Array) -> Array:
        """`[W,B]` what the speakers say with these actions."""
        said = []
        for agent, action in zip(
            self.agents, (row for team in self.teams for row in actions[team]), strict=True
        ):
            if agent.words and self.continuous_actions:
                first = MOVES if agent.accel else 0
                said.append(action[first : first + agent.words].clip(0.0, 1.0))
            elif agent.words:
                word = action // MOVES if agent.accel else action
                said.append((word == jnp.arange(agent.words)[:, None]).astype(jnp.float32))
        return jnp.concatenate(said) if said else silence

    def aims(self, world: ParticleWorld) -> list[tuple[int, list[int]]]:
        """For a picture of one game: landmarks that are goals, with the agents that seek them."""
        return []

    def scene(self, world: ParticleWorld, actions: dict[str, np.ndarray]) -> Scene:
        arena = [Patch((-1, -1), (1, 1), "field"), Patch((-1, -1), (1, 1), hollow=True)]
        things = [
            Disc(
                at,
                thing.size,
                thing.look or ("obstacle" if thing.collides else "landmark"),
                alpha=_veil(thing),
            )
            for thing, at in sorted(
                zip(self.landmarks, world.fixed, strict=True), key=lambda pair: -pair[0].size
            )
        ]
        ways = []
        rings = []
        for goal, seekers in self.aims(world):
            rings.append(
                Disc(world.fixed[goal], self.landmarks[goal].size + 0.04, "goal", hollow=True)
            )
            ways += [
                Line([world.pos[i], world.fixed[goal]], self.agents[i].team, 1.2, 0.5, True)
                for i in seekers
            ]
        said = self._words(world.word)
        people = [
            Disc(
                at, agent.size, agent.team, short(agent.name), agent.name, said.get(agent.name, "")
            )
            for agent, at in zip(self.agents, world.pos, strict=True)
        ]
        return Scene([*arena, *things, *rings, *ways, *people])

    def _words(self, word: Any) -> dict[str, str]:
        """Each speaker's loudest word as a letter; silent speakers are left out."""
        said = {}
        start = 0
        for agent in self.agents:
            own = word[start : start + agent.words]
            start += agent.words
            if own.any():
                said[agent.name] = letter(int(own.argmax()))
        return said


@dataclass(frozen=True)
class Nearsighted(Particles):
    """Base of the games that may limit agents to see only what is nearest."""

    num_agent_neighbors: int | None = None
    """see only so many other agents, the nearest first; None: all of them"""
    num_landmark_neighbors: int | None = None
    """see only so many landmarks, the nearest first; None: all of them"""

    def __post_init__(self) -> None:
        super().__post_init__()
        for option in ("num_agent_neighbors", "num_landmark_neighbors"):
            if getattr(self, option) is not None:
                at_least(1, CROWD, **{option: getattr(self, option)})

    def near_landmarks(self, world: ParticleWorld) -> Array:
        """`[N,M,2,B]` relative positions of the landmarks that each agent sees."""
        seen = relative(world.pos, world.fixed)
        return nearest_rows(seen, seen, self.num_landmark_neighbors)

    def near_agents(self, world: ParticleWorld) -> Array:
        """`[N,M,2,B]` relative positions of the others that each agent sees."""
        seen = without_self(relative(world.pos, world.pos))
        return nearest_rows(seen, seen, self.num_agent_neighbors)


def short(name: str) -> str:
    """An agent's label in a picture: its number, or its first letter if it is the only one."""
    kind, _, number = name.rpartition("_")
    return number if kind in ("agent", "adversary") else kind[:1].upper()


def letter(word: int) -> str:
    """A word's letter in a picture."""
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[word % 26]


def _veil(thing: Landmark) -> float:
    """Opacity in a picture: large things that do not collide are transparent."""
    return 0.35 if thing.size > 0.2 and not thing.collides else 1.0


def relative(origin: Array, target: Array) -> Array:
    """`[N,M,2,B]` position of each target `[M,2,B]` relative to each origin `[N,2,B]`."""
    return target - origin[:, None]


def length(vector: Array) -> Array:
    """`[…,B]` lengths of vectors `[…,2,B]`."""
    return jnp.sqrt(jnp.square(vector).sum(-2))


def without_self(pairs: Array) -> Array:
    """`[N,N-1,…]` from `[N,N,…]`: drop the diagonal, by reshaping alone."""
    n = pairs.shape[0]
    if n == 1:
        return pairs[:, :0]
    flat = pairs.reshape(n * n, *pairs.shape[2:])
    return (
        flat[1:].reshape(n - 1, n + 1, *pairs.shape[2:])[:, :-1].reshape(n, n - 1, *pairs.shape[2:])
    )


def others(rows: Array) -> Array:
    """`[N,N-1,…]` from `[N,…]`: for each agent, the rows of all others."""
    return without_self(jnp.broadcast_to(rows, (rows.shape[0], *rows.shape)))


def flat(rows: Array) -> Array:
    """`[N,M·k,B]` from `[N,M,k,B]`: join the features of several things."""
    return rows.reshape(rows.shape[0], -1, rows.shape[-1])


def nearest_rows(offset: Array, rows: Array, n: int | None) -> Array:
    """The `n` rows of `[N,M,k,B]` with the shortest offset `[N,M,2,B]`, nearest first.

    Zeros fill up missing rows; with `n` None, all rows are returned.
    """
    if n is None:
        return rows
    distance = length(offset)
    m = distance.shape[1]
    ahead = distance[:, None] < distance[:, :, None]
    tied = (distance[:, None] == distance[:, :, None]) & np.tri(m, k=-1, dtype=bool)[..., None]
    rank = (ahead | tied).sum(2)
    slot = rank[:, None] == np.arange(n)[:, None, None]
    return jnp.where(slot[:, :, :, None], rows[:, None], 0.0).sum(2)


def pick(rows: Array, index: Array) -> Array:
    """`[2,B]` the row of `[L,2,B]` at `index [B]` in each game."""
    return jnp.where((index == np.arange(rows.shape[0])[:, None])[:, None], rows, 0.0).sum(0)


def tint(index: Array, shades: int, base: float = 0.0, extra: float = 1.0) -> Array:
    """`[shades,B]` a colour: `base`, plus `extra` at `index [B]`."""
    return base + extra * (index == np.arange(shades)[:, None])


def edge_penalty(pos: Array) -> Array:
    """`[…,B]` penalty for leaving the arena.

    0 within ±0.9, then linear, then exponential up to 10.
    """
    x = jnp.abs(pos)
    price = jnp.where(x < 1.0, (x - 0.9) * 10.0, jnp.minimum(jnp.exp(2.0 * x - 2.0), 10.0))
    return jnp.where(x < 0.9, 0.0, price).sum(-2)


def padded(agents: list[Array]) -> Array:
    """`[N,F,B]` from each agent's `[f,B]`, zero-padded to the widest."""
    widest = max(obs.shape[0] for obs in agents)
    return jnp.stack([jnp.pad(obs, ((0, widest - obs.shape[0]), (0, 0))) for obs in agents])


def check_stage(curriculum: bool, stage: int, last: int) -> None:
    """Refuse a curriculum stage that does not exist, or that no curriculum would use."""
    at_least(0, curriculum_stage=stage)
    within(0, last, curriculum_stage=stage)
    if stage and not curriculum:
        raise ShoalError(f"curriculum_stage={stage} needs curriculum=True")

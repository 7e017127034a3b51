"""Small games that several tests play."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from helpers import TEAM
from jax import Array

from shoal.envs.native.probes import Endless, Identity, Quiz, Tiny
from shoal.types import Box, Discrete, Spec

SIDE, DEPTH = 6, 2


class Picture(NamedTuple):
    """Where each agent's bright pixel is, and what the last answer earned."""

    spot: Array  # [N,B]
    earned: Array  # [N,B]


@dataclass(frozen=True)
class Quadrants(Tiny):
    """Each agent sees a picture with one bright pixel and earns 1 for the number of the quadrant it
    is in."""

    name = "test/quadrants"

    @cached_property
    def teams(self) -> dict[str, Spec]:
        names, pixels = tuple(f"agent_{i}" for i in range(self.n)), (SIDE, SIDE, DEPTH)
        return self.line_up(
            {TEAM: Spec(names, SIDE * SIDE * DEPTH, 4 * self.n, Discrete(4), pixels=pixels)}
        )

    def start(self, key: Array, games: int) -> Picture:
        return Picture(
            jax.random.randint(key, (self.n, games), 0, SIDE**2), jnp.zeros((self.n, games))
        )

    def advance(self, key: Array, world: Picture, actions: dict[str, Array]) -> Picture:
        earned = (actions[TEAM] == quadrant(world.spot)).astype(jnp.float32)
        return Picture(jax.random.randint(key, world.spot.shape, 0, SIDE**2), earned)

    def observe(self, world: Picture) -> dict[str, Array]:
        lit = jnp.arange(SIDE**2)[:, None] == world.spot[:, None]  # [N,H·W,B]
        # the second channel is grey everywhere
        both = jnp.stack([lit * 255, jnp.full(lit.shape, 50)], 2)
        return {TEAM: both.reshape(self.n, -1, world.spot.shape[-1]).astype(jnp.uint8)}

    def reward(self, world: Picture) -> dict[str, Array]:
        return {TEAM: world.earned}

    def state(self, world: Picture, obs: dict[str, Array]) -> Array:
        return jax.nn.one_hot(quadrant(world.spot).T, 4).reshape(world.spot.shape[-1], -1)


def quadrant(spot: Array) -> Array:
    return 2 * (spot // SIDE >= SIDE // 2) + (spot % SIDE >= SIDE // 2)


@dataclass(frozen=True)
class Drifting(Endless):
    """The same with a real action, which changes nothing either."""

    @cached_property
    def teams(self) -> dict[str, Spec]:
        return self._team(1, Box((-1.0,), (1.0,)))


@dataclass(frozen=True)
class Opposed(Endless):
    """What agent_0 earns with every step, 1, agent_1 pays."""

    def reward(self, world: Array) -> dict[str, Array]:
        return {TEAM: world * jnp.array([[1.0], [-1.0]])}


class Tallied(NamedTuple):
    """The identity game, and how many answers were right so far."""

    quiz: Quiz
    right: Array  # [B] of all agents


@dataclass(frozen=True)
class Scored(Identity):
    """Says of an episode how many answers were right, which is what all agents earned together, and
    whether those were most."""

    name = "test/scored"
    metrics: ClassVar[tuple[str, ...]] = ("right", "agent/won")

    def start(self, key: Array, games: int) -> Tallied:  # type: ignore[override]
        return Tallied(super().start(key, games), jnp.zeros(games))

    def advance(self, key: Array, world: Tallied, actions: dict[str, Array]) -> Tallied:  # type: ignore[override]
        quiz = super().advance(key, world.quiz, actions)
        return Tallied(quiz, world.right + quiz.earned.sum(0))

    def observe(self, world: Tallied) -> dict[str, Array]:  # type: ignore[override]
        return super().observe(world.quiz)

    def reward(self, world: Tallied) -> dict[str, Array]:  # type: ignore[override]
        return super().reward(world.quiz)

    def episode_metrics(self, world: Tallied) -> dict[str, Array]:
        return {"right": world.right, "agent/won": 2 * world.right > self.n * self.length}

"""Simple reference: two agents tell each other where to go."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
from jax import Array

from ...game import within
from .physics import Agent, Landmark, Particles, ParticleWorld, flat, length, pick, relative, tint

WORDS = 10


@dataclass(frozen=True)
class SimpleReference(Particles):
    """Each agent knows the other's landmark, moves and speaks at once."""

    local_ratio: float = 0.5
    """weight of an agent's own reward; the mean over both has the rest"""

    name = "mpe/simple_reference"
    goals = 2  # the landmark each agent knows, where the *other* one must go

    def __post_init__(self) -> None:
        super().__post_init__()
        within(0, 1, local_ratio=self.local_ratio)

    @cached_property
    def agents(self) -> tuple[Agent, ...]:
        return tuple(Agent(f"agent_{i}", "agent", 11 + WORDS, words=WORDS) for i in range(2))

    @cached_property
    def landmarks(self) -> tuple[Landmark, ...]:
        return (Landmark(),) * 3

    def observe(self, world: ParticleWorld) -> dict[str, Array]:
        landmarks = flat(relative(world.pos, world.fixed))
        colours = jnp.stack([tint(goal, 3, base=0.25, extra=0.5) for goal in world.goal])
        heard = world.word.reshape(2, WORDS, -1)[::-1]
        return {"agent": jnp.concatenate([world.vel, landmarks, colours, heard], axis=1)}

    def aims(self, world: ParticleWorld) -> list[tuple[int, list[int]]]:
        return [(int(world.goal[0]), [1]), (int(world.goal[1]), [0])]

    def reward(self, world: ParticleWorld) -> dict[str, Array]:
        target = jnp.stack([pick(world.fixed, goal) for goal in world.goal])
        own = -length(world.pos[::-1] - target)
        return {"agent": (1 - self.local_ratio) * own.mean(0) + self.local_ratio * own}

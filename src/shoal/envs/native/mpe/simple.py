"""Simple: one agent walks to one landmark."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
from jax import Array

from .physics import Agent, Landmark, Particles, ParticleWorld, flat, relative


@dataclass(frozen=True)
class Simple(Particles):
    """A single agent, paid minus its squared distance."""

    name = "mpe/simple"

    @cached_property
    def agents(self) -> tuple[Agent, ...]:
        return (Agent("agent_0", "agent", 4),)

    @cached_property
    def landmarks(self) -> tuple[Landmark, ...]:
        return (Landmark(),)

    def observe(self, world: ParticleWorld) -> dict[str, Array]:
        return {
            "agent": jnp.concatenate([world.vel, flat(relative(world.pos, world.fixed))], axis=1)
        }

    def aims(self, world: ParticleWorld) -> list[tuple[int, list[int]]]:
        return [(0, [0])]

    def reward(self, world: ParticleWorld) -> dict[str, Array]:
        return {"agent": -jnp.square(world.pos - world.fixed).sum(1)}

"""Simple push: an adversary pushes an agent away from a landmark that only the agent knows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jax import Array

from .physics import (
    Agent,
    Landmark,
    Particles,
    ParticleWorld,
    flat,
    length,
    pick,
    relative,
    tint,
    without_self,
)

COLOURS = 0.1 + 0.8 * np.eye(2, 3, 1, dtype=np.float32)  # of the landmarks


@dataclass(frozen=True)
class SimplePush(Particles):
    """One against one: the agent is paid to be near its goal, the adversary for the difference."""

    name = "mpe/simple_push"
    goals = 1

    @cached_property
    def agents(self) -> tuple[Agent, ...]:
        return Agent("adversary_0", "adversary", 8, collides=True), Agent(
            "agent_0", "agent", 19, collides=True
        )

    @cached_property
    def landmarks(self) -> tuple[Landmark, ...]:
        return (Landmark(),) * 2

    def observe(self, world: ParticleWorld) -> dict[str, Array]:
        landmarks = flat(relative(world.pos, world.fixed))
        other = flat(without_self(relative(world.pos, world.pos)))
        colour = tint(world.goal[0] + 1, 3, base=0.25, extra=0.5)
        colours = jnp.broadcast_to(COLOURS.reshape(-1, 1), (COLOURS.size, world.pos.shape[-1]))
        adversary = [world.vel[0], landmarks[0], other[0]]
        agent = [world.vel[1], self._to_goal(world)[1], colour, landmarks[1], colours, other[1]]
        return {
            "adversary": jnp.concatenate(adversary)[None],
            "agent": jnp.concatenate(agent)[None],
        }

    def aims(self, world: ParticleWorld) -> list[tuple[int, list[int]]]:
        return [(int(world.goal[0]), [1])]

    def reward(self, world: ParticleWorld) -> dict[str, Array]:
        adversary, agent = length(self._to_goal(world))
        return {"adversary": (agent - adversary)[None], "agent": -agent[None]}

    def _to_goal(self, world: ParticleWorld) -> Array:
        return pick(world.fixed, world.goal[0]) - world.pos

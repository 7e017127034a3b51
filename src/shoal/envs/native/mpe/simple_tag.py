"""Simple tag: slow adversaries chase faster agents around obstacles."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
from jax import Array

from ...game import CROWD, at_least
from .physics import (
    Agent,
    Landmark,
    Nearsighted,
    ParticleWorld,
    check_stage,
    edge_penalty,
    flat,
    length,
    nearest_rows,
    others,
    relative,
    without_self,
)

# sizes
HUNTER = 0.075
PREY = 0.05
PREY_PACE = (0.5, 0.75, 1.0)  # share of full speed, by curriculum stage


@dataclass(frozen=True)
class SimpleTag(Nearsighted):
    """Adversaries share a reward for every touch; each agent pays for its own, and for leaving the
    arena."""

    num_good: int = 1
    """agents that are chased"""
    num_adversaries: int = 3
    """agents that chase"""
    num_obstacles: int = 2
    """landmarks in the way"""
    curriculum: bool = False
    """play a stage of mpe2's curriculum"""
    curriculum_stage: int = 0
    """the chased move at half speed (0), three quarters (1) or full speed (2)"""
    terminate_on_success: bool = False
    """end the episode once every chased agent is touched at the same time"""

    name = "mpe/simple_tag"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, CROWD, num_good=self.num_good, num_adversaries=self.num_adversaries)
        at_least(0, CROWD, num_obstacles=self.num_obstacles)
        check_stage(self.curriculum, self.curriculum_stage, last=2)

    @cached_property
    def agents(self) -> tuple[Agent, ...]:
        hunters = self.num_adversaries
        preys = self.num_good
        seen = 4 + 2 * (self.num_landmark_neighbors or self.num_obstacles)
        if self.num_agent_neighbors is None:
            seen += 2 * (hunters + preys - 1)
            hunter = seen + 2 * preys
            prey = seen + 2 * (preys - 1)
        else:
            hunter = prey = seen + 4 * self.num_agent_neighbors
        pace = PREY_PACE[self.curriculum_stage] if self.curriculum else 1.0
        return (
            *(
                Agent(f"adversary_{i}", "adversary", hunter, HUNTER, 3.0, 1.0, True)
                for i in range(hunters)
            ),
            *(
                Agent(f"agent_{i}", "agent", prey, PREY, 4.0 * pace, 1.3 * pace, True)
                for i in range(preys)
            ),
        )

    @cached_property
    def landmarks(self) -> tuple[Landmark, ...]:
        return (Landmark(0.2, collides=True, reach=0.9),) * self.num_obstacles

    def observe(self, world: ParticleWorld) -> dict[str, Array]:
        n = self.num_adversaries
        seen = [
            world.vel,
            world.pos,
            flat(self.near_landmarks(world)),
            flat(self.near_agents(world)),
        ]
        if self.num_agent_neighbors is None:
            velocity = others(world.vel)
            hunter = velocity[:n, n - 1 :]
            prey = velocity[n:, n:]
        else:
            preys = world.vel.at[:n].set(0.0)
            offset = without_self(relative(world.pos, world.pos))
            velocity = nearest_rows(offset, others(preys), self.num_agent_neighbors)
            hunter = velocity[:n]
            prey = velocity[n:]
        return {
            "adversary": jnp.concatenate([part[:n] for part in seen] + [flat(hunter)], axis=1),
            "agent": jnp.concatenate([part[n:] for part in seen] + [flat(prey)], axis=1),
        }

    def reward(self, world: ParticleWorld) -> dict[str, Array]:
        touch = self._touch(world)
        hunters = 10.0 * touch.sum((0, 1))
        preys = -10.0 * touch.sum(1) - edge_penalty(world.pos[self.num_adversaries :])
        return {
            "adversary": jnp.broadcast_to(hunters, (self.num_adversaries, *hunters.shape)),
            "agent": preys,
        }

    def terminal(self, world: ParticleWorld, clock: Array) -> Array | None:
        if not self.terminate_on_success:
            return None
        return self._touch(world).any(1).all(0) & (clock < self.limit)

    def _touch(self, world: ParticleWorld) -> Array:
        """`[good,adversaries,B]` which agent is touched by which adversary."""
        n = self.num_adversaries
        return length(relative(world.pos[n:], world.pos[:n])) < HUNTER + PREY

"""Simple adversary: a team hides from an adversary which landmark it wants to reach."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
from jax import Array

from ...game import CROWD, at_least
from .physics import Agent, Landmark, Nearsighted, ParticleWorld, flat, length, pick


@dataclass(frozen=True)
class SimpleAdversary(Nearsighted):
    """One adversary against a team of N; only the team sees the goal."""

    N: int = 2
    """agents of the team, and as many landmarks"""

    name = "mpe/simple_adversary"
    goals = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, CROWD, N=self.N)

    @cached_property
    def agents(self) -> tuple[Agent, ...]:
        obs = 2 * (self.num_landmark_neighbors or self.N) + 2 * (self.num_agent_neighbors or self.N)
        team = (Agent(f"agent_{i}", "agent", obs + 2, size=0.15) for i in range(self.N))
        return (Agent("adversary_0", "adversary", obs, size=0.15), *team)

    @cached_property
    def landmarks(self) -> tuple[Landmark, ...]:
        return (Landmark(size=0.08),) * self.N

    def observe(self, world: ParticleWorld) -> dict[str, Array]:
        seen = jnp.concatenate(
            [flat(self.near_landmarks(world)), flat(self.near_agents(world))], axis=1
        )
        return {
            "adversary": seen[:1],
            "agent": jnp.concatenate([self._to_goal(world)[1:], seen[1:]], axis=1),
        }

    def aims(self, world: ParticleWorld) -> list[tuple[int, list[int]]]:
        return [(int(world.goal[0]), list(range(1, len(self.agents))))]

    def reward(self, world: ParticleWorld) -> dict[str, Array]:
        distance = length(self._to_goal(world))
        team = distance[0] - distance[1:].min(0)
        return {"adversary": -distance[:1], "agent": jnp.broadcast_to(team, (self.N, *team.shape))}

    def _to_goal(self, world: ParticleWorld) -> Array:
        return pick(world.fixed, world.goal[0]) - world.pos

"""Simple spread: agents cover all landmarks without bumping into each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import jax.numpy as jnp
from jax import Array

from ....types import Spec
from ...game import CROWD, at_least, within
from .physics import (
    Agent,
    Landmark,
    Nearsighted,
    ParticleWorld,
    check_stage,
    flat,
    length,
    relative,
    without_self,
)

SIZE = 0.15
WORDS = 2  # mpe2 shows the others' channels, though none can speak


@dataclass(frozen=True)
class SimpleSpread(Nearsighted):
    """One team, a shared reward for covering and a private penalty per collision."""

    N: int = 3
    """agents, and as many landmarks"""
    local_ratio: float = 0.5
    """weight of the private penalty; the shared reward has the rest"""
    curriculum: bool = False
    """play a stage of mpe2's curriculum"""
    curriculum_stage: int = 0
    """0: collisions are free; 1: they cost"""
    terminate_on_success: bool = False
    """end the episode once every landmark is covered"""

    name = "mpe/simple_spread"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, CROWD, N=self.N)
        within(0, 1, local_ratio=self.local_ratio)
        check_stage(self.curriculum, self.curriculum_stage, last=1)

    @cached_property
    def agents(self) -> tuple[Agent, ...]:
        landmarks = self.num_landmark_neighbors or self.N
        others = self.num_agent_neighbors or self.N - 1
        obs = 4 + 2 * landmarks + (2 + WORDS) * others
        return tuple(Agent(f"agent_{i}", "agent", obs, SIZE, collides=True) for i in range(self.N))

    @cached_property
    def teams(self) -> dict[str, Spec]:
        """Observations list landmarks, then the others."""
        landmarks = self.num_landmark_neighbors or self.N
        others = self.num_agent_neighbors or self.N - 1
        listed = f"4:2x{landmarks}" + (f",{4 + 2 * landmarks}:2x{others}" if others else "")
        return {team: replace(spec, entities=listed) for team, spec in super().teams.items()}

    @cached_property
    def landmarks(self) -> tuple[Landmark, ...]:
        return (Landmark(),) * self.N

    def observe(self, world: ParticleWorld) -> dict[str, Array]:
        landmarks = self.near_landmarks(world)
        others = self.near_agents(world)
        silence = jnp.zeros((self.N, WORDS * others.shape[1], world.pos.shape[-1]))
        return {
            "agent": jnp.concatenate(
                [world.vel, world.pos, flat(landmarks), flat(others), silence], axis=1
            )
        }

    def reward(self, world: ParticleWorld) -> dict[str, Array]:
        shared = -self._uncovered(world).sum(0)
        bumps = (length(without_self(relative(world.pos, world.pos))) < 2 * SIZE).sum(1)
        if self.curriculum and self.curriculum_stage == 0:
            bumps = jnp.zeros_like(bumps)
        return {"agent": (1 - self.local_ratio) * shared - self.local_ratio * bumps}

    def terminal(self, world: ParticleWorld, clock: Array) -> Array | None:
        if not self.terminate_on_success:
            return None
        return (self._uncovered(world) < 0.1).all(0) & (clock < self.limit)

    def _uncovered(self, world: ParticleWorld) -> Array:
        """`[L,B]` distance of each landmark from its nearest agent."""
        return length(relative(world.pos, world.fixed)).min(0)

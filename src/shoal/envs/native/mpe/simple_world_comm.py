"""Simple world comm: a chase among forests that hide, food that lures and a leader who sees all and
speaks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
from jax import Array

from ...game import CROWD, at_least
from .physics import (
    Agent,
    Landmark,
    Particles,
    ParticleWorld,
    edge_penalty,
    flat,
    length,
    others,
    relative,
    without_self,
)

# sizes
HUNTER = 0.075
PREY = 0.045
FOOD = 0.03
FOREST = 0.3
WORDS = 4


@dataclass(frozen=True)
class SimpleWorldComm(Particles):
    """As in tag, but forests hide whoever is inside from whoever is not, except from the leader."""

    num_good: int = 2
    """agents that are chased"""
    num_adversaries: int = 4
    """agents that chase, the leader among them"""
    num_obstacles: int = 1
    """landmarks in the way"""
    num_food: int = 2
    """landmarks that reward the chased"""
    num_forests: int = 2
    """landmarks that hide"""

    name = "mpe/simple_world_comm"

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(
            1,
            CROWD,
            num_good=self.num_good,
            num_adversaries=self.num_adversaries,
            num_food=self.num_food,
        )
        at_least(0, CROWD, num_obstacles=self.num_obstacles, num_forests=self.num_forests)

    @cached_property
    def agents(self) -> tuple[Agent, ...]:
        hunters = self.num_adversaries
        preys = self.num_good
        seen = 4 + 2 * len(self.landmarks) + 2 * (hunters + preys - 1) + self.num_forests
        hunter = seen + 2 * preys + WORDS
        prey = seen + 2 * (preys - 1)
        return (
            Agent("leadadversary_0", "adversary", hunter, HUNTER, 3.0, 1.0, True, WORDS),
            *(
                Agent(f"adversary_{i}", "adversary", hunter, HUNTER, 3.0, 1.0, True)
                for i in range(hunters - 1)
            ),
            *(Agent(f"agent_{i}", "agent", prey, PREY, 4.0, 1.3, True) for i in range(preys)),
        )

    @cached_property
    def landmarks(self) -> tuple[Landmark, ...]:
        return (
            *(Landmark(0.2, collides=True, reach=0.9),) * self.num_obstacles,
            *(Landmark(FOOD, reach=0.9, look="food"),) * self.num_food,
            *(Landmark(FOREST, reach=0.9, look="forest"),) * self.num_forests,
        )

    def observe(self, world: ParticleWorld) -> dict[str, Array]:
        n = self.num_adversaries
        inside = self._inside(world)
        visible = self._visible(inside)
        offset = without_self(relative(world.pos, world.pos)) * visible
        velocity = others(world.vel) * visible
        seen = [world.vel, world.pos, flat(relative(world.pos, world.fixed)), flat(offset)]
        forest = jnp.where(inside, 1.0, -1.0)
        heard = jnp.broadcast_to(world.word, (n, *world.word.shape))
        return {
            "adversary": jnp.concatenate(
                [part[:n] for part in seen] + [flat(velocity[:n, n - 1 :]), forest[:n], heard],
                axis=1,
            ),
            "agent": jnp.concatenate(
                [part[n:] for part in seen] + [forest[n:], flat(velocity[n:, n:])], axis=1
            ),
        }

    def reward(self, world: ParticleWorld) -> dict[str, Array]:
        n = self.num_adversaries
        obstacles = self.num_obstacles
        hunters = world.pos[:n]
        preys = world.pos[n:]
        gap = length(relative(preys, hunters))
        touch = gap < HUNTER + PREY
        to_food = length(relative(preys, world.fixed[obstacles : obstacles + self.num_food]))
        meals = (to_food < PREY + FOOD).sum(1)
        return {
            "adversary": 5.0 * touch.sum((0, 1)) - 0.1 * gap.min(0),
            "agent": 2.0 * meals
            - 0.05 * to_food.min(1)
            - 5.0 * touch.sum(1)
            - 2.0 * edge_penalty(preys),
        }

    def _inside(self, world: ParticleWorld) -> Array:
        """`[N,forests,B]` which agent is in which forest."""
        sizes = jnp.asarray([agent.size for agent in self.agents])[:, None, None]
        forests = world.fixed[self.num_obstacles + self.num_food :]
        return length(relative(world.pos, forests)) < sizes + FOREST

    def _visible(self, inside: Array) -> Array:
        """`[N,N-1,1,B]` whom each agent sees: others in its forest, or both in the open.

        The leader sees everyone.
        """
        together = (inside[:, None] & others(inside)).any(2)
        hidden = inside.any(1)
        in_the_open = ~hidden[:, None] & ~others(hidden)
        leads = jnp.arange(len(self.agents))[:, None, None] == 0
        return (together | in_the_open | leads)[:, :, None]

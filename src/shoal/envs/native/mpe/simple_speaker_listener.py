"""Simple speaker listener: one knows the landmark and cannot move, the other moves and cannot
know."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
from jax import Array

from .physics import Agent, Landmark, Particles, ParticleWorld, flat, padded, pick, relative, tint

WORDS = 3


@dataclass(frozen=True)
class SimpleSpeakerListener(Particles):
    """Both are paid minus the listener's squared distance from the landmark meant."""

    name = "mpe/simple_speaker_listener"
    goals = 1

    @cached_property
    def agents(self) -> tuple[Agent, ...]:
        speaker = Agent("speaker_0", "agent", 3, size=0.075, accel=0.0, words=WORDS)
        return speaker, Agent("listener_0", "agent", 8 + WORDS, size=0.075)

    @cached_property
    def landmarks(self) -> tuple[Landmark, ...]:
        return (Landmark(size=0.04),) * 3

    def observe(self, world: ParticleWorld) -> dict[str, Array]:
        landmarks = flat(relative(world.pos, world.fixed))
        speaker = tint(world.goal[0], 3, base=0.15, extra=0.5)
        return {
            "agent": padded([speaker, jnp.concatenate([world.vel[1], landmarks[1], world.word])])
        }

    def aims(self, world: ParticleWorld) -> list[tuple[int, list[int]]]:
        return [(int(world.goal[0]), [1])]

    def reward(self, world: ParticleWorld) -> dict[str, Array]:
        away = world.pos[1] - pick(world.fixed, world.goal[0])
        return {"agent": jnp.stack([-jnp.square(away).sum(0)] * 2)}

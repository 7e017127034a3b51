"""Simple crypto: Alice sends Bob a bit over a public channel, with a key that Eve lacks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
from jax import Array

from .physics import Agent, Landmark, Particles, World, padded, tint

WORDS = 4


@dataclass(frozen=True)
class SimpleCrypto(Particles):
    """Two speak in secret, one listens in; nobody moves."""

    name = "mpe/simple_crypto"
    goals = 2  # the message and the key

    @cached_property
    def agents(self) -> tuple[Agent, ...]:
        return (
            Agent("eve_0", "adversary", WORDS, accel=0.0, words=WORDS),
            Agent("bob_0", "agent", 2 * WORDS, accel=0.0, words=WORDS),
            Agent("alice_0", "agent", 2 * WORDS, accel=0.0, words=WORDS),
        )

    @cached_property
    def landmarks(self) -> tuple[Landmark, ...]:
        return (Landmark(),) * 2

    def observe(self, world: World) -> dict[str, Array]:
        message, key = (tint(goal, WORDS) for goal in world.goal)
        heard = world.word[2 * WORDS :]
        bob, alice = jnp.concatenate([key, heard]), jnp.concatenate([message, key])
        return {"adversary": heard[None], "agent": padded([bob, alice])}

    def reward(self, world: World) -> dict[str, Array]:
        message = tint(world.goal[0], WORDS)
        eve, bob = _error(world.word[:WORDS], message), _error(world.word[WORDS : 2 * WORDS], message)
        return {"adversary": -eve[None], "agent": jnp.stack([eve - bob] * 2)}


def _error(guess: Array, message: Array) -> Array:
    """`[B]` squared distance of a guess from the message; silence is no error."""
    return jnp.where((guess == 0.0).all(0), 0.0, jnp.square(guess - message).sum(0))

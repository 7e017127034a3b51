"""Simple crypto: Alice sends Bob a bit over a public channel, with a key that Eve lacks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import jax.numpy as jnp
import numpy as np
from jax import Array

from ....render import Disc, Line, Scene, Text
from .physics import Agent, Landmark, Particles, ParticleWorld, letter, padded, tint

WORDS = 4
SEATS = {"eve_0": (0.0, -0.55), "bob_0": (0.75, 0.35), "alice_0": (-0.75, 0.35)}  # in a picture


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

    def observe(self, world: ParticleWorld) -> dict[str, Array]:
        message, key = (tint(goal, WORDS) for goal in world.goal)
        heard = world.word[2 * WORDS :]
        bob = jnp.concatenate([key, heard])
        alice = jnp.concatenate([message, key])
        return {"adversary": heard[None], "agent": padded([bob, alice])}

    def reward(self, world: ParticleWorld) -> dict[str, Array]:
        message = tint(world.goal[0], WORDS)
        eve = _error(world.word[:WORDS], message)
        bob = _error(world.word[WORDS : 2 * WORDS], message)
        return {"adversary": -eve[None], "agent": jnp.stack([eve - bob] * 2)}

    def scene(self, world: ParticleWorld, actions: dict[str, np.ndarray]) -> Scene:
        """Draw who says what to whom. Agents do not move, so positions mean nothing."""
        message, key = (letter(int(goal)) for goal in world.goal)
        said = self._words(world.word)
        alice = SEATS["alice_0"]
        bob = SEATS["bob_0"]
        eve = SEATS["eve_0"]
        tapped = Line([(0.0, alice[1]), eve], "adversary", 1.5, 0.6, dashed=True)
        notes = {
            alice: f"message {message}, key {key}",
            bob: f"key {key}",
            eve: "listens in, has no key",
        }
        for name, seat in (("bob_0", bob), ("eve_0", eve)):
            notes[seat] += f", guesses {said[name]}" if name in said else ""
        people = [
            Disc(
                SEATS[one.name],
                0.14,
                one.team,
                one.name[0].upper(),
                one.name,
                said.get(one.name, ""),
            )
            for one in self.agents
        ]
        words = [Text((seat[0], seat[1] - 0.24), note, 13, "soft") for seat, note in notes.items()]
        return Scene(
            [Line([alice, bob], "soft", 1.5), tapped, *words, *people], (-1.25, -1.0), (1.25, 0.9)
        )


def _error(guess: Array, message: Array) -> Array:
    """`[B]` squared distance of a guess from the message; 0 if silent."""
    return jnp.where((guess == 0.0).all(0), 0.0, jnp.square(guess - message).sum(0))

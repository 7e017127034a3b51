"""simple_speaker_listener: a scripted listener that knows the landmark meant."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from shoal.envs.game import GameState
from shoal.envs.native.mpe.simple_speaker_listener import SimpleSpeakerListener

from .mpe import BRAKES, opened, steer
from .search import Actions, rollout


def listener(games: int, idle: int) -> float:
    """Mean return of an agent when the listener stands still for `idle` steps, then steers."""
    game = SimpleSpeakerListener()
    opening = opened(game, games)
    goal = np.asarray(opening.world.goal)[0]
    target = jnp.asarray(np.asarray(opening.world.fixed)[goal, :, np.arange(games)].T[None])

    def play(brake: float) -> float:
        def act(state: GameState, time: jax.Array) -> Actions:
            world = state.world
            move = steer(world.pos[1:], world.vel[1:], target, brake)
            move = jnp.where(time < idle, 0, move)
            return {"agent": jnp.concatenate([jnp.zeros_like(move), move])}

        return float(rollout(game, opening, act, jnp.arange(game.limit), "agent")[0].mean())

    return max(play(brake) for brake in BRAKES)

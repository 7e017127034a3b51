"""What players of MPE games share: steering, reach, and what a planner needs of a game."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from shoal.envs.game import Game, GameState
from shoal.envs.native.mpe.physics import DAMPING, STEP

from .search import Improve

BRAKES = (0.1, 0.2, 0.3, 0.4)  # seconds by which a scripted player brakes ahead
STEEP = 10.0  # push per distance of a scripted player with real actions


class Problem(NamedTuple):
    """A game with a scripted player, and a search that begins from some of its plans."""

    scripted: np.ndarray  # [B] returns of the scripted player
    plan: Any  # […,B·chains] where the search begins
    improve: Improve
    bound: np.ndarray  # [B] a return that nobody exceeds
    agents: int = 1  # whose returns add up to the score; 1: the score is the mean of all


def opened(game: Game, games: int) -> GameState:
    return jax.jit(game.reset, static_argnums=1)(jax.random.key(0), games)[0]


def steer(pos: Array, vel: Array, target: Array, brake: Any) -> Array:
    """The move `[N,B]` of bodies `[N,2,B]` along the axis where the target is furthest."""
    error = target - (pos + brake * vel)
    axis = jnp.abs(error).argmax(-2)
    along = jnp.take_along_axis(error, axis[..., None, :], -2)[..., 0, :]
    return jnp.where(jnp.abs(along) < 0.05, 0, 2 * axis + 1 + (along > 0)).astype(jnp.int32)


def thrust(pos: Array, vel: Array, target: Array, brake: Any) -> Array:
    """The push `[N,2,B]` within ±1 of bodies with real actions."""
    return jnp.clip(STEEP * (target - pos - brake * vel), -1.0, 1.0)


def real_actions(push: Array) -> Array:
    """Actions `[N,5,B]` for pushes `[N,2,B]`."""
    back = (1.0 - push) / 2
    ahead = (1.0 + push) / 2
    return jnp.stack(
        [jnp.zeros_like(back[:, 0]), back[:, 0], ahead[:, 0], back[:, 1], ahead[:, 1]], 1
    )


def reach(accel: float, steps: int) -> np.ndarray:
    """`[T]` the furthest that one axis can change by each step, under a full push from rest."""
    pos = 0.0
    vel = 0.0
    path: list[float] = []
    for _ in range(steps):
        pos += vel * STEP
        vel = vel * (1.0 - DAMPING) + accel * STEP
        path.append(pos)
    return np.array(path)

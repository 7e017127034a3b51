"""What scripted players reach that know more than any agent does: how to read the scores of
`learning.py`.

    python benchmarks/ceilings.py

Each player steers along the axis on which it is furthest from its target, braking for its own
speed; the braking distance is the best of several. On simple_spread targets are the cheapest
assignment of landmarks to agents; on speaker-listener the landmark meant, known from the first step
on, or only from the second, when a message can first have arrived.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import jax
import numpy as np

from shoal.envs import make

GAMES = 4096
STEPS = 25


def steer(pos: np.ndarray, vel: np.ndarray, target: np.ndarray, brake: float) -> np.ndarray:
    """The move `[…,B]` of bodies `[…,2,B]` towards their targets."""
    error = target - (pos + brake * vel)
    axis = np.abs(error).argmax(-2)
    along = np.take_along_axis(error, axis[..., None, :], -2)[..., 0, :]
    return np.where(np.abs(along) < 0.05, 0, 2 * axis + 1 + (along > 0))


def play(
    env_id: str, targets: Callable[[Any], np.ndarray], agents: slice, idle: int, brake: float
) -> float:
    """Mean return of one agent when `agents` steer, after `idle` steps of standing still."""
    env = make(env_id)
    state, _ = jax.jit(env.reset, static_argnums=1)(jax.random.key(0), GAMES)
    step = jax.jit(env.step)
    target = targets(state.world)
    earned = 0.0
    for t in range(STEPS):
        moves = np.zeros((env.teams["agent"].n, GAMES), np.int32)
        if t >= idle:
            moves[agents] = steer(
                np.array(state.world.pos)[agents], np.array(state.world.vel)[agents], target, brake
            )
        state, views = step(jax.random.key(t), state, {"agent": moves.T})
        earned += float(views["agent"].reward.mean())
    return earned


def cheapest(world: Any) -> np.ndarray:
    """`[N,2,B]` landmarks so assigned to agents that the distances add up to least."""
    pos = np.array(world.pos)
    fixed = np.array(world.fixed)
    orders = np.array(list(permutations(range(len(fixed)))))
    costs = [np.linalg.norm(pos - fixed[order], axis=1).sum(0) for order in orders]
    best = orders[np.argmin(costs, axis=0)]
    return np.moveaxis(fixed[best.T, :, np.arange(pos.shape[-1])], 1, -1)


def meant(world: Any) -> np.ndarray:
    """`[1,2,B]` the landmark the speaker means."""
    fixed = np.array(world.fixed)
    goal = np.array(world.goal)[0]
    return fixed[goal, :, np.arange(len(goal))].T[None]


def main() -> None:
    brakes = (0.1, 0.2, 0.3, 0.4)
    spread = max(play("mpe/simple_spread", cheapest, slice(None), 0, brake) for brake in brakes)
    print(f"simple_spread, cheapest assignment: p = {spread:.2f}")
    for idle, how in ((0, "landmark known at once"), (1, "known after one step")):
        p = max(
            play("mpe/simple_speaker_listener", meant, slice(1, 2), idle, brake) for brake in brakes
        )
        print(f"simple_speaker_listener, {how}: p = {p:.2f}, sum of two {2 * p:.2f}")


if __name__ == "__main__":
    main()

"""simple_spread: scripted players, plans, and a bound."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from scipy.optimize import linear_sum_assignment

from shoal.envs.game import Game, GameState
from shoal.envs.native.mpe.physics import MOVES, ParticleWorld, length, relative, without_self
from shoal.envs.native.mpe.simple_spread import SIZE, SimpleSpread

from .mpe import BRAKES, Problem, opened, reach, real_actions, steer, thrust
from .search import (
    Act,
    Actions,
    Improve,
    anneal,
    ascend,
    change_block,
    nudge_block,
    repeat,
    rollout,
)

FAR = 1e6
MANY = 4096  # openings by which the brake of a scripted player is chosen


class EasedSpread(SimpleSpread):
    """Spread with useful gradients: contact is constant, collisions begin to cost gradually."""

    width = 0.02

    def _contact(self, world: ParticleWorld) -> Array | float:
        return jax.lax.stop_gradient(super()._contact(world))

    def reward(self, world: ParticleWorld) -> dict[str, Array]:
        apart = length(without_self(relative(world.pos, world.pos)))
        bumps = jax.nn.sigmoid((2 * SIZE - apart) / self.width + 1.0).sum(1)
        return {"agent": super().reward(world)["agent"] - self.local_ratio * bumps}


def assigned(world: ParticleWorld, chains: int) -> Array:
    """`[N,2,B·chains]` landmarks as targets: each game's cheapest assignment, then random ones.

    Those are the cheapest for distances with noise.
    """
    pos = np.asarray(world.pos)
    fixed = np.asarray(world.fixed)
    distance = np.linalg.norm(pos[:, None] - fixed, axis=2)
    random = np.random.default_rng(0)
    targets = np.zeros((*pos.shape, chains), np.float32)
    for game, chain in np.ndindex(pos.shape[-1], chains):
        noise = random.exponential(0.4, distance.shape[:2]) if chain else 0.0
        agents, landmarks = linear_sum_assignment(distance[..., game] + noise)
        targets[agents, :, game, chain] = fixed[landmarks, :, game]
    return jnp.asarray(targets.reshape(*pos.shape[:2], -1))


def spread_script(game: SimpleSpread, target: Array, brake: Any) -> Act:
    def act(state: GameState, _: Any) -> Actions:
        body = state.world
        if game.continuous_actions:
            return {"agent": real_actions(thrust(body.pos, body.vel, target, brake))}
        return {"agent": steer(body.pos, body.vel, target, brake)}

    return act


def best_brake(game: SimpleSpread, games: int) -> tuple[float, float]:
    """The brake of the best scripted player over `games` openings, and its mean return."""
    opening = opened(game, games)
    target = assigned(opening.world, 1)
    played = jax.jit(
        lambda brake: rollout(game, opening, spread_script(game, target, brake), None, "agent")[0]
    )
    means = {brake: float(played(brake).mean()) for brake in BRAKES}
    brake = max(means, key=lambda brake: means[brake])
    return brake, means[brake]


def spread(game: SimpleSpread, openings: int, chains: int, rounds: int = 2000) -> Problem:
    """One agent's return. A round of real actions costs more, so there are fewer."""
    opening = opened(game, openings)
    brake, _ = best_brake(game, MANY)
    script = spread_script(game, assigned(opening.world, 1), brake)
    scripted, _ = jax.jit(lambda: rollout(game, opening, script, None, "agent"))()
    many = repeat(opening, chains)
    brakes = jax.random.uniform(jax.random.key(1), (openings * chains,), minval=0.1, maxval=0.4)
    mixed = spread_script(game, assigned(opening.world, chains), brakes)
    _, began = jax.jit(lambda: rollout(game, many, mixed, None, "agent"))()
    plan = began["agent"]
    if game.continuous_actions:
        plan = plan[:, :, 2::2] - plan[:, :, 1::2]
        improve = climb(game, many, rounds // 4)
    else:
        improve = shuffle(game, many, rounds)
    return Problem(np.asarray(scripted), plan, improve, spread_bound(game, opening.world))


def shuffle(game: SimpleSpread, many: GameState, rounds: int) -> Improve:
    """Annealing of discrete plans."""

    def play(plan: Array) -> Array:
        return rollout(game, many, lambda _, row: {"agent": row}, plan, "agent")[0]

    propose = partial(change_block, MOVES)
    return lambda key, plan: anneal(play, propose, key, plan, rounds, 0.03, 0.001)


def climb(game: SimpleSpread, many: GameState, rounds: int) -> Improve:
    """Gradient ascent of real plans, then annealing, which sees the true cost of collisions."""
    eased = EasedSpread(**asdict(game))

    def play(plan: Array, game: Game = game) -> Array:
        return rollout(game, many, lambda _, row: {"agent": real_actions(row)}, plan, "agent")[0]

    smooth = partial(play, game=eased)
    propose = partial(nudge_block, 0.2)

    def improve(key: Array, plan: Array) -> tuple[Array, Array]:
        plan, _ = ascend(play, smooth, plan, rounds, 0.05)
        return anneal(play, propose, key, plan, rounds, 0.01, 0.001)

    return improve


def beyond(offset: np.ndarray, radius: np.ndarray, box: bool) -> np.ndarray:
    """`[T,…]` distance of points `[2,…]` from all that lies within `radius [T]` of the origin.

    That is a square with real actions, which push along both axes at once, else a diamond.
    """
    away = np.abs(offset)
    radius = radius.reshape(-1, *[1] * (away.ndim - 1))
    if box:
        return np.sqrt((np.maximum(away - radius[:, None], 0.0) ** 2).sum(1))
    corner = np.clip((away[0] - away[1] + radius) / 2, 0.0, radius)
    outside = np.hypot(away[0] - corner, away[1] - (radius - corner))
    return np.where(away.sum(0) > radius, outside, 0.0)


def spread_bound(game: SimpleSpread, world: ParticleWorld) -> np.ndarray:
    """`[B]` a return that no plan exceeds by its own force.

    Every step is relaxed by itself. A landmark has an agent of its own, as near as that could be by
    then, or shares one. The distances of landmarks from an agent that they share add up to at least
    half of their distances from their nearest neighbours. The first step is exact, later
    collisions are free. That an agent may be pushed by others is not counted.
    """
    pos = np.asarray(world.pos)
    fixed = np.asarray(world.fixed)
    radius = reach(game.agents[0].accel, game.limit)
    offset = np.moveaxis(pos[:, None] - fixed, 2, 0)
    near = beyond(offset, radius, game.continuous_actions)  # [T,N,L,B]
    gaps = np.linalg.norm(fixed[:, None] - fixed, axis=2)
    gaps += FAR * np.eye(game.N)[..., None]
    apart = gaps.min(0) / 2  # [L,B]
    cost = np.zeros((game.limit, pos.shape[-1]))
    for step, one in np.ndindex(cost.shape):
        own = near[step, :, :, one].T
        for part in (0.0, 0.5, 1.0):
            joint = part * own.min(1) + (1.0 - part) * apart[:, one]
            table = np.hstack([own, np.broadcast_to(joint[:, None], (game.N, game.N))])
            cost[step, one] = max(cost[step, one], table[linear_sum_assignment(table)].sum())
    first = np.asarray(game.reward(world)["agent"]).mean(0)
    return first - (1 - game.local_ratio) * cost[1:].sum(0)

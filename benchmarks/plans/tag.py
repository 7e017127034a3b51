"""simple_tag: three hunters against a prey that does not learn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from shoal.envs.game import GameState
from shoal.envs.native.mpe.physics import MOVES, STEP, ParticleWorld, edge_penalty, length
from shoal.envs.native.mpe.simple_tag import HUNTER, PREY, SimpleTag

from .mpe import Problem, opened, steer
from .search import Act, Actions, anneal, change_block, repeat, rollout

Prey = Callable[[ParticleWorld, Any], Array]  # its move [1,B], given the step's row of `draws`
LEADS = (0.0, 0.1, 0.2, 0.3, 0.4)  # seconds by which hunters aim ahead
FAR = 100.0
MARGIN = 0.01  # contact is soft: it begins a little before bodies touch


def still(world: ParticleWorld, draw: Array) -> Array:
    """A prey that does not push."""
    return jnp.zeros_like(draw)


def random(world: ParticleWorld, draw: Array) -> Array:
    """A prey that plays at random: its moves are drawn once for each opening."""
    return draw


def fleeing(world: ParticleWorld, draw: Array) -> Array:
    """A prey that moves to where, half a second on, the nearest hunter is furthest.

    It pays for leaving the arena as the game counts it.
    """
    push = np.array([[0, 0], [-1, 0], [1, 0], [0, -1], [0, 1]], np.float32)
    ahead = world.pos[-1] + 0.3 * world.vel[-1] + 0.4 * push[..., None]  # [5,2,B]
    hunters = world.pos[:-1] + 0.3 * world.vel[:-1]
    nearest = length(ahead[:, None] - hunters).min(1)
    return (nearest - edge_penalty(ahead)).argmax(0)[None].astype(draw.dtype)


PREYS: dict[str, Prey] = {"random": random, "fleeing": fleeing, "still": still}


def chase(prey: Prey, lead: Any) -> Act:
    """Scripted hunters: each steers to where the prey is about to be."""

    def act(state: GameState, draw: Array) -> Actions:
        world = state.world
        target = (world.pos + lead * world.vel)[-1:]
        move = steer(world.pos[:-1], world.vel[:-1], target, 0.0)
        return {"adversary": move, "agent": prey(world, draw)}

    return act


def tag(kind: str, openings: int, chains: int, rounds: int = 2000) -> Problem:
    """The hunters' return, which they share, against a prey of this kind."""
    game = SimpleTag()
    prey = PREYS[kind]
    opening = opened(game, openings)
    draws = jax.random.randint(jax.random.key(2), (game.limit, 1, openings), 0, MOVES)
    team = "adversary"
    chased = jax.jit(lambda lead: rollout(game, opening, chase(prey, lead), draws, team)[0])
    scripted = max((np.asarray(chased(lead)) for lead in LEADS), key=lambda got: got.mean())
    many = repeat(opening, chains)
    known = repeat(draws, chains)
    leads = jax.random.uniform(jax.random.key(1), (openings * chains,), maxval=0.5)
    _, began = jax.jit(lambda: rollout(game, many, chase(prey, leads), known, team))()

    def act(state: GameState, row: tuple[Array, Array]) -> Actions:
        return {"adversary": row[0], "agent": prey(state.world, row[1])}

    def play(plan: Array) -> Array:
        return rollout(game, many, act, (plan, known), team)[0]

    propose = partial(change_block, MOVES)
    improve = lambda key, plan: anneal(play, propose, key, plan, rounds, 5.0, 0.5)  # noqa: E731
    bound = touches(game, opening, prey, draws)
    return Problem(scripted, began["adversary"], improve, bound)


def touches(game: SimpleTag, opening: GameState, prey: Prey, draws: Array) -> np.ndarray:
    """`[B]` a return that no hunters exceed.

    A hunter touches only what it can have reached at its top speed. Until one of them can have, a
    prey that does not look at hunters keeps to the path it takes alone; from there on, as a prey
    that looks from the start, it may come to meet them at its own top speed.
    """
    hunters = np.asarray(opening.world.pos)[:-1]
    top = game.agents[0].max_speed
    prey_top = game.agents[-1].max_speed
    path = _alone(game, opening, prey, draws)  # [T,2,B]
    ways = STEP * np.arange(game.limit)[:, None, None]
    touch = HUNTER + PREY + MARGIN
    away = np.linalg.norm(hunters[:, None] - path, axis=2)  # [N,T,B]
    could = np.moveaxis(away, 0, 1) <= top * ways + touch
    last = could.any(1).argmax(0) if prey is not fleeing else np.zeros(away.shape[-1], int)
    last = np.where(could.any((0, 1)) | (prey is fleeing), last, game.limit - 1)
    left = path[last, :, np.arange(len(last))].T  # where it leaves its path
    free = np.maximum(ways - STEP * last, 0.0)
    met = np.linalg.norm(hunters - left, axis=1) <= top * ways + prey_top * free + touch
    steps = np.arange(game.limit)[:, None, None]
    return 10.0 * np.where(steps <= last, could, met).sum((0, 1))


def _alone(game: SimpleTag, opening: GameState, prey: Prey, draws: Array) -> np.ndarray:
    """`[T,2,B]` the path of a prey without hunters, by each step."""
    pos = opening.world.pos.at[:-1].set(
        FAR * jnp.arange(1, game.num_adversaries + 1)[:, None, None]
    )
    world = opening.world._replace(pos=pos)
    path: list[Array] = []
    for draw in draws:
        idle = jnp.zeros((game.num_adversaries, draw.shape[-1]), draw.dtype)
        world = game.advance(
            jax.random.key(0), world, {"adversary": idle, "agent": prey(world, draw)}
        )
        path.append(world.pos[-1])
    return np.stack(path)

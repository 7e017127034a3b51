"""Level-based foraging: plans say who gathers which food, from which side and in which order."""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from shoal.envs.game import GameState
from shoal.envs.native.lbf.foraging import LOAD, TEAM, Foraging, ForagingWorld

from .mpe import Problem, opened
from .search import Act, Actions, anneal, choose, repeat, rollout

MOVES = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])  # of actions 1 to 4; also the sides of a food
UNREACHED = 10_000


class Errands(NamedTuple):
    """A plan: all players go through their foods in one order, and load when all are there."""

    rank: Array  # [M,B] foods of lower rank come first
    sent: Array  # [N,M,B] bool: who is sent to a food
    side: Array  # [N,M,B] int32 where a player stands to load it


def foraging(game: Foraging, openings: int, chains: int, rounds: int = 100) -> Problem:
    """The players' returns add up to the score: the share of all food levels gathered."""
    opening = opened(game, openings)
    ways = distances(game, opening.world)
    scripted, _ = jax.jit(
        lambda: rollout(game, opening, follow(game, ways, together(opening.world)), None, TEAM)
    )()
    many = repeat(opening, chains)
    near = repeat(ways, chains)
    plan = repeat(together(opening.world), chains)
    for turn in range(6):  # chains begin apart from each other, but for the first
        other = other_errands(jax.random.key(turn), plan)
        plan = choose(jnp.arange(openings * chains) % chains > 0, other, plan)

    def play(plan: Errands) -> Array:
        return rollout(game, many, follow(game, near, plan), None, TEAM)[0]

    improve = lambda key, plan: anneal(play, other_errands, key, plan, rounds, 0.02, 0.002)  # noqa: E731
    bound = np.full(openings, 1 / game.players)
    return Problem(np.asarray(scripted), plan, improve, bound, game.players)


def together(world: ForagingWorld) -> Errands:
    """The scripted plan: all go to all food, each time to the food nearest to the last."""
    food = np.asarray(world.food)
    at = np.asarray(world.place).mean(0)
    foods, _, games = food.shape
    rank = np.full((foods, games), np.inf)
    for turn in range(foods):
        away = np.abs(food - at).sum(1) + np.where(np.isinf(rank), 0, UNREACHED)
        following = away.argmin(0)
        rank[following, np.arange(games)] = turn / foods
        at = food[following, :, np.arange(games)].T
    shape = (world.place.shape[0], foods, games)
    side = np.add.outer(np.arange(shape[0]), np.arange(foods)) % len(MOVES)
    side = np.broadcast_to(side[..., None], shape)
    return Errands(jnp.asarray(rank), jnp.ones(shape, bool), jnp.asarray(side, jnp.int32))


def other_errands(key: Array, plan: Errands) -> Errands:
    """Another plan: a food comes earlier or later, or one player skips it or changes sides."""
    players, foods, games = plan.sent.shape
    draw = jax.random.uniform(key, (5, games))
    who = jnp.arange(players)[:, None, None] == (draw[0] * players).astype(jnp.int32)
    which = jnp.arange(foods)[:, None] == (draw[1] * foods).astype(jnp.int32)
    side = (draw[2] * len(MOVES)).astype(jnp.int32)
    kind = (draw[3] * 3).astype(jnp.int32)
    return Errands(
        jnp.where(which & (kind == 0), draw[4], plan.rank),
        plan.sent ^ (who & which & (kind == 1)),
        jnp.where(who & which & (kind == 2), side, plan.side),
    )


def distances(game: Foraging, world: ForagingWorld) -> Array:
    """`[M,4,R,C,B]` steps from each cell to each side of each food, around all food.

    The board has a rim that cannot be entered.
    """
    food = np.asarray(world.food) + 1
    count, _, games = food.shape
    rim = np.ones((game.rows + 2, game.columns + 2, games), bool)
    rim[1:-1, 1:-1] = False
    for row, column in np.moveaxis(food, 1, 0).swapaxes(0, 1):
        rim[row, column, np.arange(games)] = True
    steps = np.full((count, len(MOVES), *rim.shape), UNREACHED, np.int32)
    for j, s in np.ndindex(count, len(MOVES)):
        row, column = food[j] + MOVES[s][:, None]
        steps[j, s, row, column, np.arange(games)] = 0
    while True:
        around = [np.roll(steps, move, (2, 3)) for move in MOVES]
        closer = np.where(rim, UNREACHED, np.minimum(steps, np.minimum.reduce(around) + 1))
        if (closer == steps).all():
            return jnp.asarray(steps)
        steps = closer


def follow(game: Foraging, ways: Array, plan: Errands) -> Act:
    """Players that run their errands, and give way to those with a lower number."""
    foods, sides, rows, columns, games = ways.shape
    flat = ways.reshape(-1)

    def steps(food: Array, side: Array, place: Array) -> Array:
        """`[B]` from places `[2,B]` to a side of a food."""
        row, column = place + 1
        cell = ((food * sides + side) * rows + row) * columns + column
        return flat[cell * games + jnp.arange(games)]

    def act(state: GameState, _: None) -> Actions:
        world: ForagingWorld = state.world
        wanted = jnp.where(plan.sent & (world.amount > 0), plan.rank, jnp.inf)
        busy = jnp.isfinite(wanted).any(1)
        food = wanted.argmin(1)  # [N,B]
        side = jnp.take_along_axis(plan.side, food[:, None], 1)[:, 0]
        far = jnp.stack([steps(food[n], side[n], world.place[n]) for n in range(game.players)])
        there = busy & (far == 0)
        at = there[:, None] & (food[:, None] == jnp.arange(foods)[:, None])  # [N,M,B]
        ready = (at | ~plan.sent).all(0)
        load = there & jnp.take_along_axis(ready, food, 0)
        claimed = jnp.where(there | ~busy, cell(world.place), -1)
        actions: list[Array] = []
        for n in range(game.players):
            goes = busy[n] & ~there[n]
            turned = 0.01 * (state.clock % 2 * 2 - 1)  # no going back and forth for ever
            costs = [far[n] + 1.5]
            for index, move in enumerate(MOVES):  # the others' cells are in `claimed`
                ahead = world.place[n] + move[:, None]
                taken = (cell(ahead) == claimed).any(0)
                costs.append(steps(food[n], side[n], ahead) + UNREACHED * taken + turned * index)
            choice = jnp.stack(costs).argmin(0)
            action = jnp.where(goes, choice, jnp.where(load[n], LOAD, 0))
            actions.append(action)
            step = jnp.concatenate([np.zeros((1, 2), int), MOVES])[choice].T
            target = jnp.where(goes, cell(world.place[n] + step), claimed[n])
            claimed = claimed.at[n].set(target)
        return {TEAM: jnp.stack(actions).astype(jnp.int32)}

    def cell(place: Array) -> Array:
        return place[..., 0, :] * columns + place[..., 1, :]

    return act

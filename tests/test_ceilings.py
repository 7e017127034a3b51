"""The planner of `benchmarks/ceilings.py`, on games whose optimum is known."""

from __future__ import annotations

import sys
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import with_pages

from shoal.envs.game import Game, GameState
from shoal.envs.native.lbf.foraging import Foraging
from shoal.envs.native.matrix import Climbing
from shoal.envs.native.mpe.simple_spread import SimpleSpread
from shoal.envs.native.mpe.simple_tag import SimpleTag

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
if BENCHMARKS.is_dir():
    sys.path.insert(0, str(BENCHMARKS))
    from plans import foraging, mpe, search, spread, tag

pytestmark = with_pages  # the benchmarks are where the pages are
GAMES = 4
CHAINS = 4


def given(_: GameState, row: Any) -> dict:
    return {"agent": row}


def replayed(game: Game, opening: GameState, plan: Any, team: str = "agent") -> np.ndarray:
    """`[B]` returns of actions `[T,N,…,B]`, or of those of several teams, step by step."""
    teams = plan if isinstance(plan, dict) else {team: plan}
    state = opening
    total = np.zeros(opening.over.shape)
    over = np.zeros(opening.over.shape, bool)
    step = jax.jit(game.step)
    for t in range(game.limit):
        row = {name: jnp.moveaxis(jnp.asarray(moves[t]), -1, 0) for name, moves in teams.items()}
        state, views = step(jax.random.key(t), state, row)
        total += np.where(over, 0.0, np.asarray(views[team].reward).mean(1))
        over |= np.asarray(state.over)
    return total


def climbing(sweeps: int, rounds: int) -> tuple[Any, list[np.ndarray], Game, GameState]:
    """Plans for two repetitions of the climbing game, from the safe joint action."""
    game = Climbing(repetitions=2)
    opening = mpe.opened(game, GAMES)
    many = search.repeat(opening, CHAINS)
    plan = jnp.full((2, 2, GAMES * CHAINS), 2, jnp.int32)

    def play(plan: Any) -> jax.Array:
        return search.rollout(game, many, given, plan, "agent")[0]

    def improve(key: jax.Array, plan: Any) -> tuple[Any, jax.Array]:
        return search.anneal(play, partial(search.change_block, 3), key, plan, rounds, 30.0, 3.0)

    plan, records, _ = search.search(improve, plan, CHAINS, sweeps)
    return plan, records, game, opening


def test_annealing_finds_the_best_joint_action_behind_the_worst() -> None:
    plan, records, game, opening = climbing(sweeps=4, rounds=40)
    assert (records[-1] == 22).all()
    np.testing.assert_array_equal(replayed(game, opening, plan), records[-1])


def test_a_longer_search_is_never_worse() -> None:
    _, short, _, _ = climbing(sweeps=1, rounds=4)
    _, long, _, _ = climbing(sweeps=3, rounds=4)
    np.testing.assert_array_equal(short[0], long[0])
    assert (np.diff(long, axis=0) >= 0).all()
    assert short[0].min() < 22, "otherwise this shows nothing"


def test_ascent_finds_the_best_path_of_one_body() -> None:
    """One agent, one landmark too far to reach: the best is a full push all the way, the bound."""
    game = SimpleSpread(N=1, max_cycles=4, continuous_actions=True)
    opening = mpe.opened(game, GAMES)
    fixed = opening.world.pos + jnp.array([2.0, -3.0])[:, None]
    opening = opening._replace(world=opening.world._replace(fixed=fixed))

    def play(plan: jax.Array, game: Game = game) -> jax.Array:
        act = lambda _, row: {"agent": mpe.real_actions(row)}  # noqa: E731
        return search.rollout(game, opening, act, plan, "agent")[0]

    eased = partial(play, game=spread.EasedSpread(**asdict(game)))
    plan, returns = search.ascend(play, eased, jnp.zeros((4, 1, 2, GAMES)), 60, 0.1)
    np.testing.assert_allclose(returns, spread.spread_bound(game, opening.world), rtol=1e-5)
    np.testing.assert_allclose(plan[:2, 0, 0], 1.0)
    np.testing.assert_allclose(plan[:2, 0, 1], -1.0)


@pytest.mark.slow
@pytest.mark.parametrize("continuous", [False, True])
def test_spread_plans_are_played_as_planned_and_within_the_bound(continuous: bool) -> None:
    game = SimpleSpread(N=2, max_cycles=8, continuous_actions=continuous)
    problem = spread.spread(game, GAMES, CHAINS, rounds=20)
    plan, records, _ = search.search(problem.improve, problem.plan, CHAINS, 2)
    actions = jax.vmap(mpe.real_actions)(plan) if continuous else plan
    played = replayed(game, mpe.opened(game, GAMES), actions)
    np.testing.assert_allclose(played, records[-1], rtol=1e-5)
    assert (records[-1] <= problem.bound).all()
    assert records[-1].mean() > problem.scripted.mean()


def test_the_spread_bound_lets_no_agent_cover_two_distant_landmarks() -> None:
    """Agents that start where the landmarks are could cover them all, those far away cannot."""
    game = SimpleSpread(N=2, max_cycles=3)
    opening = mpe.opened(game, 1)
    there = jnp.array([[-1.0, 0.0], [1.0, 0.0]])[..., None]
    world = opening.world._replace(pos=there, fixed=there)
    np.testing.assert_allclose(spread.spread_bound(game, world), 0.0, atol=1e-6)
    one = world._replace(pos=jnp.array([[0.0, 0.0], [0.0, 9.0]])[..., None])
    # the best is to stay between them: 3 steps of 2, halved; the bound is only a little higher
    assert -3.0 < spread.spread_bound(game, one)[0] < -2.9


@pytest.mark.slow
@pytest.mark.parametrize("prey", ["random", "fleeing", "still"])
def test_tag_plans_stay_within_the_bound(prey: str) -> None:
    problem = tag.tag(prey, GAMES, CHAINS, rounds=20)
    plan, records, _ = search.search(problem.improve, problem.plan, CHAINS, 1)
    assert (records[-1] <= problem.bound).all()
    assert records[-1].mean() >= problem.scripted.mean()
    assert plan.shape == (SimpleTag().limit, 3, GAMES)


@pytest.mark.slow
def test_errands_clear_small_boards_and_are_played_as_planned() -> None:
    game = Foraging(rows=6, columns=6, players=2, max_num_food=2, max_cycles=30)
    problem = foraging.foraging(game, GAMES, CHAINS, rounds=20)
    plan, records, _ = search.search(problem.improve, problem.plan, CHAINS, 2)
    np.testing.assert_allclose(records[-1] * game.players, 1.0, rtol=1e-5)
    opening = mpe.opened(game, GAMES)
    act = foraging.follow(game, foraging.distances(game, opening.world), plan)
    _, actions = search.rollout(game, opening, act, None, "agent")
    np.testing.assert_allclose(replayed(game, opening, actions["agent"]), records[-1], rtol=1e-5)


def test_distances_go_around_food() -> None:
    game = Foraging(rows=5, columns=5, players=1, max_num_food=1)
    world = mpe.opened(game, 1).world._replace(food=jnp.array([[[2], [2]]]))
    ways = np.asarray(foraging.distances(game, world))[0, ..., 0]
    # side 0 is the cell above the food; the board has a rim
    assert ways[0, 2, 3] == 0
    assert ways[0, 4, 3] == 4, "from the other side, around the food"
    assert ways[0, 3, 3] == ways[0, 0, 3] == foraging.UNREACHED

"""Playing: T steps of B games, every team acting, into one window per team."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from .algorithms.base import Algorithm
from .envs.base import Env
from .nets.sees import as_input
from .types import Clock, View, Window


class Play(NamedTuple):
    """Games under way."""

    game: Any
    views: dict[str, View]
    carries: dict[str, Any]


def collect(
    env: Env, algorithms: dict[str, Algorithm], learners: dict, play: Play, key: Array, clock: Clock, steps: int
) -> tuple[Play, dict[str, Window]]:
    """Play on for `steps` steps, exploring."""
    step = partial(play_step, env, algorithms, learners, clock, False)
    after, (views, actions, records) = jax.lax.scan(step, play, jax.random.split(key, steps))
    windows = {}
    for team in algorithms:
        stream = jax.tree.map(lambda past, now: jnp.concatenate([past, now[None]]), views[team], after.views[team])
        rivals = _rivals(env, team, actions)
        windows[team] = Window(stream, actions[team], records[team], play.carries[team], after.carries[team], rivals)
    return after, windows


def _rivals(env: Env, team: str, actions: dict[str, Array]) -> Array:
    """`[T,B,M]` what the other teams did, as a net reads it; nothing is computed where nobody asks for it."""
    steps, games = actions[team].shape[:2]
    others = [as_input(actions[other], spec) for other, spec in env.teams.items() if other != team]
    return jnp.concatenate([jnp.zeros((steps, games, 0)), *(o.reshape(steps, games, -1) for o in others)], -1)


def play_step(
    env: Env, algorithms: dict[str, Algorithm], learners: dict, clock: Clock, greedy: bool, play: Play, key: Array
) -> tuple[Play, tuple[dict, dict, dict]]:
    """One step of every game."""
    key_env, *keys = jax.random.split(key, 1 + len(algorithms))
    decisions = {
        team: algorithm.act(learners[team], k, play.views[team], play.carries[team], clock, greedy)
        for k, (team, algorithm) in zip(keys, algorithms.items(), strict=True)
    }
    actions = {team: decision.action for team, decision in decisions.items()}
    game, views = env.step(key_env, play.game, actions)
    carries = {team: decision.carry for team, decision in decisions.items()}
    records = {team: decision.record for team, decision in decisions.items()}
    return Play(game, views, carries), (play.views, actions, records)

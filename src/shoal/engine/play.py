"""Playing: T steps of B games with every team acting, as one window per team."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ..algorithms.base import Algorithm
from ..envs.game import Env, measure
from ..nets.inputs import as_input
from ..types import Clock, Spec, View, Window


class Play(NamedTuple):
    """Games under way."""

    game: Any
    views: dict[str, View]
    carries: dict[str, Any]


def collect(
    env: Env,
    algorithms: dict[str, Algorithm],
    learners: dict[str, Any],
    play: Play,
    key: Array,
    clock: Clock,
    steps: int,
) -> tuple[Play, dict[str, Window], dict[str, Array]]:
    """Play `steps` steps with exploration.

    Also returns the environment's own metrics `[T,B]`, taken before each step."""
    step = partial(_measured_step, env, partial(play_step, env, algorithms, learners, clock, False))
    # split all keys at once: splitting inside the scan would cost as much as a step
    keys = jax.random.split(key, (steps, 1 + len(algorithms)))
    after, ((views, actions, records), episode_metrics) = jax.lax.scan(step, play, keys)
    streams = jax.tree.map(lambda past, now: jnp.concatenate([past, now[None]]), views, after.views)
    seen = windows(env.teams, streams, actions, records, play.carries, after.carries)
    return after, seen, episode_metrics


def _measured_step(
    env: Env, step: Callable[[Play, Any], tuple[Play, Any]], play: Play, keys: Any
) -> tuple[Play, Any]:
    """Take the environment's metrics, then step.

    A finished episode's metrics are thus taken from its final state, before the next one opens."""
    after, played = step(play, keys)
    games = next(iter(play.views.values())).first.shape[0]
    return after, (played, measure(env, play.game, games))


def windows(
    teams: dict[str, Spec],
    streams: dict[str, View],
    actions: dict[str, Array],
    records: dict[str, Any],
    carries: dict[str, Any],
    carries_end: dict[str, Any],
) -> dict[str, Window]:
    """Make each team's window from what was played."""
    return {
        team: Window(
            view,
            actions[team],
            records[team],
            carries[team],
            carries_end[team],
            _rivals(teams, team, streams, actions),
        )
        for team, view in streams.items()
    }


def _rivals(
    teams: dict[str, Spec], team: str, streams: dict[str, View], actions: dict[str, Array]
) -> Array:
    """`[T,B,M]` actions of the other teams' living agents, encoded for nets.

    The compiler drops it where no algorithm reads it."""
    steps, games = actions[team].shape[:2]
    others = [
        as_input(actions[other], spec) * streams[other].alive[:-1, ..., None]
        for other, spec in teams.items()
        if other != team
    ]
    return jnp.concatenate(
        [jnp.zeros((steps, games, 0)), *(o.reshape(steps, games, -1) for o in others)], -1
    )


def play_step(
    env: Env,
    algorithms: dict[str, Algorithm],
    learners: dict[str, Any],
    clock: Clock,
    greedy: bool,
    play: Play,
    keys: Any,
) -> tuple[Play, tuple[dict[str, View], dict[str, Array], dict[str, Any]]]:
    """Step every game once; `keys` are one for the games and one for each team.

    Also returns the views, actions and records."""
    key_env, *own = keys
    actions, carries, records = decide(
        algorithms, learners, clock, greedy, play.views, play.carries, own
    )
    with jax.named_scope("game"):
        game, views = env.step(key_env, play.game, actions)
    return Play(game, views, carries), (play.views, actions, records)


@jax.named_scope("act")
def decide(
    algorithms: dict[str, Algorithm],
    learners: dict[str, Any],
    clock: Clock,
    greedy: bool,
    views: dict[str, View],
    carries: dict[str, Any],
    keys: Any,
) -> tuple[dict[str, Array], dict[str, Any], dict[str, Any]]:
    """Every team's actions, carries and records at one instant."""
    decisions = {
        team: algorithm.act(learners[team], key, views[team], carries[team], clock, greedy)
        for key, (team, algorithm) in zip(keys, algorithms.items(), strict=True)
    }
    return (
        {team: decision.action for team, decision in decisions.items()},
        {team: decision.carry for team, decision in decisions.items()},
        {team: decision.record for team, decision in decisions.items()},
    )

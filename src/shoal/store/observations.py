"""Convert users' observations to views, and actions to what users' environments take."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from ..errors import ShoalError
from ..types import Discrete, Spec, View

Masks = Mapping[str, Any]  # by agent


def agent_rows(
    agent: str, observation: Any, size: int, images: set[tuple[int, ...]]
) -> tuple[np.ndarray, bool]:
    """An agent's observation as `[B,size]`, and whether it came as a batch."""
    try:
        seen = np.asarray(observation, np.float32)
    except (TypeError, ValueError):
        raise ShoalError(
            f"{agent}'s observation must be an array of numbers; its mask goes into `legal`"
        ) from None
    wrong = seen[~np.isfinite(seen)]
    if wrong.size:
        raise ShoalError(f"{agent} observes {wrong[0]:g}: observations must be finite numbers")
    if seen.ndim > 1 and math.prod(seen.shape[1:]) == size and seen.shape not in images:
        return seen.reshape(-1, size), True
    if seen.size != size:
        raise ShoalError(
            f"{agent} observes {size} numbers, not {seen.shape[-1] if seen.ndim else 1}: give it"
            f" what the environment shows it"
        )
    return seen.reshape(1, size), False


def team_view(
    spec: Spec, seen: dict[str, np.ndarray], legal: Masks, alive: Masks, games: int
) -> View:
    """Build a team's view; agents without an observation are absent."""
    obs = np.zeros((games, spec.n, spec.obs), np.float32)
    allowed = np.zeros((games, spec.n, spec.action.size), bool)
    here = np.zeros((games, spec.n), bool)
    for i, agent in enumerate(spec.agents):
        if agent in seen:
            obs[:, i, : seen[agent].shape[1]] = seen[agent]
            there = np.asarray(alive.get(agent, True), bool)
            if there.shape not in ((), (games,)):
                raise ShoalError(
                    f"alive must say of {agent} in each of the {games} games whether it is there"
                )
            here[:, i] = there
        mask = np.asarray(legal.get(agent, np.ones(_actions(spec, i))), bool)
        if mask.shape not in ((_actions(spec, i),), (games, _actions(spec, i))):
            raise ShoalError(
                f"{agent} has {_actions(spec, i)} actions: its mask must say of each if it is legal"
            )
        allowed[:, i, : _actions(spec, i)] = mask
        if isinstance(spec.action, Discrete) and (here[:, i] & ~allowed[:, i].any(-1)).any():
            raise ShoalError(f"{agent} is alive and has no legal action: its mask must allow one")
    nothing = np.zeros((games, spec.n), np.float32)
    state = np.zeros((games, spec.state), np.float32)  # critics read the state, actors never do
    first = np.zeros(games, bool)
    parts = (obs, state, allowed, here, first, nothing, here.astype(np.float32))
    return View(*map(jnp.asarray, parts))


def observation_sizes(teams: Mapping[str, Spec]) -> dict[str, int]:
    """Size of each agent's observation."""
    found = {}
    for spec in teams.values():
        sizes = spec.obs_sizes or (spec.obs,) * spec.n
        found |= dict(zip(spec.agents, sizes, strict=True))
    return found


def _actions(spec: Spec, i: int) -> int:
    return spec.action_sizes[i] if spec.action_sizes else spec.action.size


def by_agent(spec: Spec, action: np.ndarray, seen: dict[str, Any], batched: bool) -> dict[str, Any]:
    """Each present agent's action in its environment's form: an int or a vector of its own size;
    one row per game of a batch."""
    places = {agent: i for i, agent in enumerate(spec.agents) if agent in seen}
    if isinstance(spec.action, Discrete):
        return {
            agent: action[:, i] if batched else int(action[0, i]) for agent, i in places.items()
        }
    rows = {agent: action[:, i, : _actions(spec, i)] for agent, i in places.items()}
    return rows if batched else {agent: row[0] for agent, row in rows.items()}

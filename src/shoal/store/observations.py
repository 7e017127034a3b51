"""Convert users' observations to views, and actions to what users' environments take."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import ShoalError, did_you_mean
from ..types import Box, Discrete, Spec, View

Masks = Mapping[str, Any]  # by agent


class Seen(NamedTuple):
    """What agents observe at an instant, checked."""

    games: int  # 0 if nobody observes anything
    batched: bool  # whether it came as a batch of games
    rows: dict[str, dict[str, np.ndarray]]  # team -> agent -> `[B,obs]`
    views: dict[str, View]  # of numpy arrays, by team that observes something


def read(
    teams: Mapping[str, Spec],
    agents: Sequence[str],
    observations: Any,
    legal: Any = None,
    alive: Any = None,
) -> Seen:
    """Read what users hand over for some `agents` of these teams; refuses what does not fit."""
    legal = {} if legal is None else legal
    alive = {} if alive is None else alive
    for name, given in {"observations": observations, "legal": legal, "alive": alive}.items():
        _refuse_unknown(name, given, agents)
    sizes = observation_sizes(teams)
    shapes = {spec.pixels for spec in teams.values() if spec.pixels}
    seen = {
        agent: _agent_rows(agent, value, sizes[agent], shapes)
        for agent, value in observations.items()
    }
    games, batched = _count(seen)
    rows = {
        team: {agent: own for agent, (own, _) in seen.items() if agent in spec.agents}
        for team, spec in teams.items()
    }
    views = {
        team: _team_view(teams[team], own, legal, alive, games) for team, own in rows.items() if own
    }
    return Seen(games, batched, rows, views)


def _refuse_unknown(name: str, given: Any, agents: Sequence[str]) -> None:
    """Refuse anything but a dictionary whose keys are among these agents."""
    if not isinstance(given, Mapping):
        raise ShoalError(f"{name} must be a dictionary by agent, such as {{{agents[0]!r}: ...}}")
    for agent in given:
        if agent not in agents:
            hint = did_you_mean(str(agent), agents)
            known = ", ".join(agents)
            raise ShoalError(f"there is no agent {agent!r}{hint}: this policy plays {known}")


def _count(seen: dict[str, tuple[np.ndarray, bool]]) -> tuple[int, bool]:
    """The number of games, and whether the observations are a batch."""
    counts = {(len(rows), batched) for rows, batched in seen.values()}
    if len(counts) > 1:
        raise ShoalError(
            "observations must be of one game or of the same number of games for every agent"
        )
    games, batched = next(iter(counts), (0, False))
    if seen and not games:
        raise ShoalError(
            "these are observations of no game at all: leave the agents out that see nothing"
        )
    return games, batched


def _agent_rows(
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


def _team_view(
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
        if isinstance(spec.action, Box):
            continue
        free = [part.any(-1) for part in spec.action.split(allowed[:, i])]
        if (here[:, i] & ~np.all(free, 0)).any():
            raise ShoalError(f"{agent} is alive and has no legal action: its mask must allow one")
    nothing = np.zeros((games, spec.n), np.float32)
    state = np.zeros((games, spec.state), np.float32)  # critics read the state, actors never do
    first = np.zeros(games, bool)
    parts: Any = (obs, state, allowed, here, first, nothing, here.astype(np.float32))
    return View(*parts)


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

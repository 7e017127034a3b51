"""The reverse adapter: any match as a PettingZoo environment."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import spaces
from pettingzoo import ParallelEnv

from ...types import Discrete, MultiDiscrete, Spec
from ..host.match import Match, MatchStep, TeamStep


class ToPettingZoo(ParallelEnv):
    """A match as a `ParallelEnv`; legal actions are in `infos[agent]["action_mask"]`."""

    metadata = {"name": "shoal", "render_modes": ["rgb_array"], "is_parallelizable": True}
    render_mode = "rgb_array"

    def __init__(self, match: Match):
        self.match = match
        self.places = {
            agent: (team, i)
            for team, spec in match.teams.items()
            for i, agent in enumerate(spec.agents)
        }
        self.possible_agents = list(self.places)
        self.agents: list[str] = []
        each = [(agent, match.teams[team], place) for agent, (team, place) in self.places.items()]
        self.observation_spaces = {agent: _seen(spec, place) for agent, spec, place in each}
        self.action_spaces = {agent: _done(spec, place) for agent, spec, place in each}
        size = next(iter(match.teams.values())).state
        self.state_space = spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.seeds = np.random.default_rng()
        self.instant = MatchStep({}, np.zeros(size, np.float32), True)

    def observation_space(self, agent: str) -> spaces.Space:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> spaces.Space:
        return self.action_spaces[agent]

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        if seed is not None:
            self.seeds = np.random.default_rng(seed)
        self.instant = self.match.reset(int(self.seeds.integers(2**31)) if seed is None else seed)
        self.agents = [agent for agent in self.places if self._of(agent, "alive")]
        return self._obs(self.agents), self._infos(self.agents)

    def step(self, actions: dict[str, Any]) -> tuple[dict, dict, dict, dict, dict]:
        if not self.agents:
            return {}, {}, {}, {}, {}
        self.instant = self.match.step(self._inward(actions))
        present = [
            a
            for a in self.places
            if a in self.agents or self._of(a, "alive") or self._of(a, "reward")
        ]
        left = {a for a in self.agents if self.instant.over or not self._of(a, "alive")}
        terminated = {agent: agent in left and not self._of(agent, "discount") for agent in present}
        truncated = {agent: agent in left and not terminated[agent] for agent in present}
        self.agents = [a for a in present if self._of(a, "alive") and not self.instant.over]
        rewards = {agent: float(self._of(agent, "reward")) for agent in present}
        return self._obs(present), rewards, terminated, truncated, self._infos(present)

    def state(self) -> np.ndarray:
        return self.instant.state

    def render(self) -> np.ndarray:
        return self.match.render()

    def close(self) -> None:
        self.match.close()

    def _inward(self, actions: dict[str, Any]) -> dict[str, np.ndarray]:
        """Actions by team; missing actions and padding are zeros."""
        teams = {
            team: np.zeros((spec.n, *spec.action.shape), spec.action.dtype)
            for team, spec in self.match.teams.items()
        }
        for agent, action in actions.items():
            team, place = self.places[agent]
            if np.ndim(action):
                teams[team][place, : np.size(action)] = action
            else:
                teams[team][place] = action
        return teams

    def _of(self, agent: str, field: str) -> Any:
        team, place = self.places[agent]
        seen: TeamStep = self.instant.teams[team]
        return getattr(seen, field)[place]

    def _obs(self, agents: list[str]) -> dict[str, np.ndarray]:
        shapes = {agent: self.observation_spaces[agent].shape or () for agent in agents}
        return {
            agent: self._of(agent, "obs")[: int(np.prod(shape))].reshape(shape)
            for agent, shape in shapes.items()
        }

    def _infos(self, agents: list[str]) -> dict[str, dict[str, Any]]:
        return {agent: self._mask(agent) for agent in agents}

    def _mask(self, agent: str) -> dict[str, Any]:
        """Legal actions; a mask for each part of an action that has several."""
        space = self.match.teams[self.places[agent][0]].action
        legal = self._of(agent, "legal").astype(np.int8)
        if isinstance(space, Discrete):
            return {"action_mask": legal[: self.action_spaces[agent].n]}  # type: ignore[attr-defined]
        if isinstance(space, MultiDiscrete):
            return {"action_mask": tuple(space.split(legal))}
        return {}


def _seen(spec: Spec, place: int) -> spaces.Space:
    if spec.pixels:
        return spaces.Box(0, 255, spec.pixels, np.uint8)
    size = spec.obs_sizes[place] if spec.obs_sizes else spec.obs
    return spaces.Box(-np.inf, np.inf, (size,), np.float32)


def _done(spec: Spec, place: int) -> spaces.Space:
    size = spec.action_sizes[place] if spec.action_sizes else spec.action.size
    if isinstance(spec.action, Discrete):
        return spaces.Discrete(size)
    if isinstance(spec.action, MultiDiscrete):
        return spaces.MultiDiscrete(list(spec.action.parts))
    own = spec.action.of(place)
    low, high = (np.array(bound[:size], np.float32) for bound in (own.low, own.high))
    return spaces.Box(low, high, dtype=np.float32)

"""Environments that count right answers: what they say about an episode follows from what they
paid."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

LENGTH = 4


class Tally:
    """Agents of two teams each see a number, 0 or 1, and earn 1 for saying it.

    `says` is how it tells of right answers: as `info`, by a `method`, or wrongly."""

    possible_agents = ["red_0", "red_1", "blue_0"]

    def __init__(self, says: str = "info", metrics: Any = ("right", "red/right", "won")):
        self.says = says
        self.metrics = metrics
        if says == "method":
            self.episode_metrics = self._metrics
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> spaces.Space:
        return spaces.Box(0.0, 1.0, (1,))

    def action_space(self, agent: str) -> spaces.Space:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict, dict]:
        self.rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.taken = 0
        self.right = dict.fromkeys(self.agents, 0)
        return self._asked(), {agent: {} for agent in self.agents}

    def step(self, actions: dict[str, int]) -> tuple[dict, dict, dict, dict, dict]:
        self.taken += 1
        acted = self.agents
        rewards = {agent: float(actions[agent] == self.cue[agent]) for agent in acted}
        for agent, reward in rewards.items():
            self.right[agent] += int(reward)
        over = self.taken == LENGTH
        self.agents = [] if over else acted
        infos = {agent: self._info(agent, over) for agent in acted}
        ends = dict.fromkeys(acted, over)
        return self._asked(), rewards, ends, dict.fromkeys(acted, False), infos

    def close(self) -> None:
        pass

    def _asked(self) -> dict[str, np.ndarray]:
        self.cue = {agent: int(self.rng.integers(2)) for agent in self.possible_agents}
        return {agent: np.array([cue], np.float32) for agent, cue in self.cue.items()}

    def _info(self, agent: str, over: bool) -> dict[str, Any]:
        wrong = {"nan": np.nan, "text": "many", "two": [1, 2], "huge": 1e300}
        if self.says == "method" or self.says == "nothing" or (self.says == "late" and not over):
            return {}
        told = wrong.get(self.says, np.int64(self.right[agent]))
        return {"right": told, "won": self.right[agent] == self.taken, "note": "not a number"}

    def _metrics(self) -> dict[str, Any]:
        right = list(self.right.values())
        return {"right": np.mean(right), "red/right": np.mean(right[:2]), "won": min(right) == 4}


class Counter(gymnasium.Env):
    """The same for one, of whom the info tells."""

    observation_space = spaces.Box(0.0, 1.0, (1,))
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        self.rng = np.random.default_rng(seed)
        self.taken = self.right = 0
        return self._asked(), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
        self.taken += 1
        reward = float(action == self.cue)
        self.right += int(reward)
        info = {"right": self.right, "is_success": self.right > 2}
        return self._asked(), reward, self.taken == LENGTH, False, info

    def _asked(self) -> np.ndarray:
        self.cue = int(self.rng.integers(2))
        return np.array([self.cue], np.float32)


def make(**how: Any) -> Tally:
    return Tally(**how)


def counter(**how: Any) -> Counter:
    return Counter(**how)


def skirmish(**how: Any) -> Any:
    from skirmish import Skirmish

    return Skirmish(**how)

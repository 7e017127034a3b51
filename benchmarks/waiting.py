"""A Gymnasium environment that waits: its cost is time, not cores."""

from __future__ import annotations

import time
from typing import Any

import gymnasium
import numpy as np

LENGTH = 50


class Waiting(gymnasium.Env):
    """Every step waits `wait` seconds; action 1 earns 1."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (4,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, wait: float = 5e-3):
        self.wait = wait

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.at = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict]:
        time.sleep(self.wait)
        self.at += 1
        return self._seen(), float(action), self.at == LENGTH, False, {}

    def _seen(self) -> np.ndarray:
        return np.full(4, self.at / LENGTH, np.float32)


def make_env(wait: float = 5e-3) -> Waiting:
    return Waiting(wait)

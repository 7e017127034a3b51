"""A game that breaks in every way there is, as its seed decides: what a fault test can count on."""

from __future__ import annotations

import os
import time
from typing import Any, ClassVar

import numpy as np

from shoal.envs.host.match import MatchStep, TeamStep
from shoal.types import Discrete, Spec

LENGTH, AGENTS = 6, 2
FATES = ("well", "raises", "nan", "shape", "reset", "illegal", "hangs", "killed")


def fate(seed: int, shares: dict[str, float]) -> tuple[str, int]:
    """How the episode of a seed goes, and the step at which it breaks; a reset breaks at step 0."""
    rng = np.random.default_rng(seed)
    odds = np.array([shares.get(name, 0.0) for name in FATES[1:]])
    name = str(rng.choice(FATES, p=[1 - odds.sum(), *odds]))
    return name, 0 if name == "reset" else int(rng.integers(1, LENGTH + 1))


class Brittle:
    """Every step earns 1; an episode lasts `LENGTH` steps unless it breaks.

    It takes `slow` seconds to open, and with `once` no more is opened after a seed has come twice.
    """

    # that those which open but `once` were opened with, in this process
    seeds: ClassVar[list[int]] = []

    def __init__(self, slow: float = 0.0, once: bool = False, **shares: float):
        self.slow, self.once, self.shares = slow, once, shares
        spec = Spec(("agent_0", "agent_1"), obs=3, state=6, action=Discrete(2), joined=True)
        self.teams = {"agent": spec}

    def reset(self, seed: int) -> MatchStep:
        self.fate, self.at = fate(seed, self.shares)
        self.step_number = 0
        time.sleep(self.slow)
        if self.once:
            self.seeds.append(seed)
            if len(set(self.seeds)) < len(self.seeds):
                raise ValueError("has been here before")
        if self.fate == "reset":
            raise ValueError("cannot be reset")
        return self._moment()

    def step(self, actions: dict[str, np.ndarray]) -> MatchStep:
        assert actions["agent"].shape == (AGENTS,)
        self.step_number += 1
        if self.step_number == self.at and self.fate != "well":
            return getattr(self, f"_{self.fate}")()
        return self._moment()

    def render(self) -> np.ndarray:
        raise NotImplementedError

    def close(self) -> None:
        pass

    def _moment(self) -> MatchStep:
        obs = np.full((AGENTS, 3), self.step_number, np.float32)
        ones = np.ones(AGENTS, np.float32)
        seen = TeamStep(
            obs,
            np.ones((AGENTS, 2), bool),
            np.ones(AGENTS, bool),
            ones * (self.step_number > 0),
            ones,
        )
        return MatchStep({"agent": seen}, obs.reshape(-1), self.step_number == LENGTH)

    def _raises(self) -> MatchStep:
        raise RuntimeError("the environment fell over")

    def _nan(self) -> MatchStep:
        moment = self._moment()
        moment.teams["agent"].reward[0] = np.nan
        return moment

    def _shape(self) -> MatchStep:
        moment = self._moment()
        return moment._replace(
            teams={"agent": moment.teams["agent"]._replace(obs=np.zeros((AGENTS, 4), np.float32))}
        )

    def _illegal(self) -> MatchStep:
        moment = self._moment()
        moment.teams["agent"].legal[1] = False
        return moment

    def _hangs(self) -> MatchStep:
        time.sleep(1000)
        raise AssertionError

    def _killed(self) -> MatchStep:
        os.kill(os.getpid(), 9)
        raise AssertionError


def make(**how: Any) -> Brittle:
    return Brittle(**how)

"""Adapter for SMAC's interface, which SMACv2 shares and wrappers of SMAClite imitate.

The interface: `get_env_info`, `reset`, `get_obs`, `get_state`, `get_avail_actions` and
`step(actions)`, which returns the team's reward, whether the battle is over, and an info. There is
one team, `agent`, whose agents all get that reward.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...errors import ShoalError
from ...types import Discrete, Spec
from ..host.match import Broken, MatchStep, TeamStep
from ..metrics import WON
from . import rules
from .metrics import MetricReader, by_agent, number
from .options import AdapterOptions

TEAM = "agent"
NEEDED = ("get_env_info", "reset", "step", "get_obs", "get_state", "get_avail_actions")


class SmacMatch:
    """One battle.

    It is truncated after `options.limit` steps; 0 leaves time limits to the battle.
    """

    def __init__(self, env: Any, options: AdapterOptions):
        missing = [name for name in NEEDED if not callable(getattr(env, name, None))]
        if missing:
            raise ShoalError(
                f"{type(env).__name__} lacks {', '.join(missing)}, which SMAC's interface has"
            )
        self.env = env
        self.limit = int(options.limit)
        self.taken = 0  # steps of this episode
        self.alive = np.zeros(0, bool)
        self.informs = False  # whether its info was ever non-empty
        self.info: Mapping[str, Any] = {}  # of the last step
        info = env.get_env_info()
        obs, state = (int(np.prod(info[shape])) for shape in ("obs_shape", "state_shape"))
        self.unseen = options.unseen
        state = state if self.unseen is None else 0
        agents = tuple(f"{TEAM}_{i}" for i in range(int(info["n_agents"])))
        self.teams = {TEAM: Spec(agents, obs, state, Discrete(int(info["n_actions"])))}
        self.metric_reader = MetricReader(env, options, self.teams)
        self.metrics = self.metric_reader.names or ((WON,) if options.asked is None else ())

    def reset(self, seed: int) -> MatchStep:
        """Open a battle, seeded if `reset` or `seed` takes a seed.

        SMAC itself takes a seed only when it is created.
        """
        self.taken = 0
        if _takes(self.env.reset, "seed"):
            self.env.reset(seed=seed)
        else:
            # SMAC's own `seed()` takes no argument and only returns the seed
            if _takes(getattr(self.env, "seed", None)):
                self.env.seed(seed)
            self.env.reset()
        return self._match_step(0.0, ended=False, over=False)

    def step(self, actions: dict[str, np.ndarray]) -> MatchStep:
        """Advance one step; dead agents play no-op, action 0."""
        told = [int(action) for action in np.where(self.alive, actions[TEAM], 0)]
        answer = self.env.step(told)
        if (
            not isinstance(answer, tuple | list)
            or len(answer) != 3
            or not isinstance(answer[2], Mapping)
        ):
            raise Broken(
                f"step of SMAC's interface gives reward, terminated and an info dictionary, not"
                f" {answer!r}"[:300]
            )
        reward = answer[0]
        info = answer[2]
        terminated = rules.flag(answer[1], "terminated")
        self.taken += 1
        if terminated and self.informs and not info:
            raise Broken(
                "it ended without any info, as SMAC does when StarCraft II had to be started again"
            )
        self.informs |= bool(info)
        self.info = info
        ended = bool(terminated) and not info.get("episode_limit", False)
        return self._match_step(float(reward), ended, bool(terminated) or self.taken == self.limit)

    def episode_metrics(self) -> dict[str, float]:
        """The metrics asked for, or whether the battle was won, from SMAC's info."""
        if self.metric_reader.names:
            return self.metric_reader.read(by_agent(self.info, self.teams[TEAM].agents))
        return {WON: number(self.info.get("battle_won", False), WON)}

    def render(self) -> np.ndarray:
        picture = self.env.render(mode="rgb_array")
        if picture is None:
            raise ShoalError(f"{type(self.env).__name__} draws no pictures")
        return np.asarray(picture, np.uint8)

    def close(self) -> None:
        with contextlib.suppress(AttributeError, NotImplementedError):
            self.env.close()

    def _match_step(self, reward: float, ended: bool, over: bool) -> MatchStep:
        spec = self.teams[TEAM]
        masks = zip(spec.agents, self.env.get_avail_actions(), strict=True)
        legal = np.stack([rules.allowed(mask, agent, spec.action.size) for agent, mask in masks])
        self.alive = np.asarray(
            legal[:, 1:].any(-1)
        )  # no-op is the only legal action of a dead agent
        discount = np.where(ended, 0.0, self.alive).astype(np.float32)
        rewards = np.full(spec.n, reward, np.float32)
        obs = np.stack([np.ravel(row) for row in self.env.get_obs()]).astype(np.float32)
        state = (
            np.ravel(self.env.get_state()).astype(np.float32)
            if self.unseen is None
            else self.unseen
        )
        return MatchStep({TEAM: TeamStep(obs, legal, self.alive, rewards, discount)}, state, over)


def _takes(method: Callable | None, *names: str) -> bool:
    """Whether a method has parameters of these names; without names, whether it has any."""
    if not callable(method):
        return False
    parameters = inspect.signature(method).parameters
    return all(name in parameters for name in names) if names else bool(parameters)

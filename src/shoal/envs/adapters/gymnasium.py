"""Adapter for Gymnasium environments.

They have one agent, or several if their spaces are Tuples with one part per agent.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from gymnasium import spaces

from ..host.match import Broken, MatchStep
from ..metrics import WON
from . import rules
from .metrics import MetricReader, by_agent, number
from .options import AdapterOptions
from .pettingzoo import frame
from .spaces import MASK, reader, writer
from .teams import EnvStep, Roster, fates

SUCCESS = "is_success"
PARTS = "observation, reward, terminated, truncated, info"


class GymMatch:
    """A match of a Gymnasium environment; its agents are agent_0, agent_1, …"""

    def __init__(self, env: Any, options: AdapterOptions):
        self.env = env
        seen, done = (
            rules.a_space(getattr(env, name), f"{name} of {rules.GYM}")
            for name in ("observation_space", "action_space")
        )
        rules.takes_a_seed(env, rules.GYM)
        self.several = (
            isinstance(seen, spaces.Tuple)
            and isinstance(done, spaces.Tuple)
            and len(seen.spaces) == len(done.spaces)
        )
        self.agents = [f"agent_{i}" for i in range(len(done.spaces) if self.several else 1)]
        self.roster = Roster(
            {
                agent: reader(agent, space, options.strict)
                for agent, space in self._by_agent(seen).items()
            },
            {
                agent: writer(agent, space, options.factored)
                for agent, space in self._by_agent(done).items()
            },
            options.teams,
            None if options.unseen is None else 0,
        )
        self.state = options.unseen
        self.teams = self.roster.teams
        self.metric_reader = MetricReader(env, options, self.teams)
        # Gymnasium-Robotics: an environment with this method has `is_success` in its infos
        self.succeeds = (
            not self.metric_reader.names and options.asked is None and _judges_success(env)
        )
        self.metrics = (WON,) if self.succeeds else self.metric_reader.names
        self.info: Any = {}  # of the last step
        self.live: set[str] = set()

    def reset(self, seed: int) -> MatchStep:
        obs, info = rules.opened(self._reset(seed), rules.GYM, "an observation and an info")
        self.live = set(self.agents)
        return self._match_step(
            obs, info, EnvStep({}, self.live, discounts=dict.fromkeys(self.agents, 1.0))
        )

    def step(self, actions: dict[str, np.ndarray]) -> MatchStep:
        native = self.roster.native(actions, self.agents)
        told = self.env.step(tuple(native.values()) if self.several else native["agent_0"])
        obs, reward, terminated, truncated, info = rules.stepped(told, rules.GYM, PARTS)
        ends = rules.flags(self._each(terminated), "termination")
        cuts = rules.flags(self._each(truncated), "truncation")
        live = {agent for agent in self.live if not ends[agent] and not cuts[agent]}
        alive, discounts = fates(self.live, live, ends, cuts)
        self.live = live
        self.info = info
        return self._match_step(
            obs, info, EnvStep({}, alive, {}, self._each(reward), discounts, over=not live)
        )

    def episode_metrics(self) -> dict[str, float]:
        """The metrics asked for or declared, or whether the last step was a success."""
        if self.succeeds:
            return {WON: number(self.info.get(SUCCESS, False), WON)}
        return self.metric_reader.read(by_agent(self.info, self.agents))

    def render(self) -> np.ndarray:
        plain = self.env.unwrapped
        # the old Gym API, which some packages still have
        if "mode" in inspect.signature(plain.render).parameters:
            return np.asarray(plain.render(mode="rgb_array"), np.uint8)
        return frame(self.env)

    def close(self) -> None:
        rules.close(self.env)

    def _reset(self, seed: int) -> Any:
        try:
            return self.env.reset(seed=seed)
        except TypeError as error:  # an environment inside wrappers that pass the seed on
            if "argument 'seed'" not in str(error):
                raise
            raise Broken(f"reset of {rules.GYM} takes a seed: write {rules.RESET}") from error

    def _match_step(self, obs: Any, info: Any, env_step: EnvStep) -> MatchStep:
        seen = self._by_agent(obs)
        told = info.get(MASK) if isinstance(info, dict) else None
        masks = {} if told is None else self._by_agent(told)
        for agent, value in seen.items():
            if self.roster.seats[agent].reader.masked:
                masks[agent] = value[MASK]
        return self.roster.match_step(env_step._replace(obs=seen, masks=masks), self.state)

    def _by_agent(self, parts: Any) -> dict[str, Any]:
        """A value for one agent, or a sequence for several, by agent."""
        parts = list(parts) if self.several else [parts]
        if len(parts) != len(self.agents):
            raise Broken(
                f"the environment gives {len(parts)} things where {len(self.agents)} agents play"
            )
        return dict(zip(self.agents, parts, strict=True))

    def _each(self, value: Any) -> dict[str, Any]:
        """A number or flag for every agent: its own, or a common one."""
        return self._by_agent(
            value if np.ndim(value) or not self.several else [value] * len(self.agents)
        )


def _judges_success(env: Any) -> bool:
    return callable(getattr(getattr(env, "unwrapped", env), f"_{SUCCESS}", None))

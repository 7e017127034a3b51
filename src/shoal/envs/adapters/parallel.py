"""Environments where all agents move at once: PettingZoo's `ParallelEnv`, or anything with its methods."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...types import ShoalError
from ..host import Broken, Moment
from .how import How
from .spaces import reader, writer
from .teams import News, Roster, fates


def frame(env: Any) -> np.ndarray:
    """The picture an environment draws."""
    if not hasattr(env, "render"):
        raise Broken("the environment draws no picture: it has no render()")
    picture = env.render()
    if not isinstance(picture, np.ndarray) or picture.ndim != 3:
        raise Broken("the environment draws no picture: its render() gives no array of height, width and colours")
    return picture[..., :3].astype(np.uint8)


class World:
    """What PettingZoo's two kinds of environments have in common: agents with spaces, perhaps a state of their own."""

    def __init__(self, env: Any, how: How):
        agents = list(getattr(env, "possible_agents", ()))
        if not agents:
            raise ShoalError(f"{env} names no possible_agents: the environment must say who may ever play.")
        self.env = env
        env.reset(seed=0)  # before it, an environment may not tell its state
        self.state = self._first_state() if how.state else how.unseen
        self.roster = Roster(
            {agent: reader(str(agent), env.observation_space(agent), how.strict) for agent in agents},
            {agent: writer(str(agent), env.action_space(agent)) for agent in agents},
            how.teams,
            None if self.state is None else self.state.size,
        )
        self.teams = self.roster.teams
        self.live: set[Any] = set()  # who is present and may act

    def render(self) -> np.ndarray:
        return frame(self.env)

    def close(self) -> None:
        self.env.close()

    def present(self) -> list[Any]:
        """The agents the environment lists now."""
        agents = list(self.env.agents)
        for agent in agents:
            if agent not in self.roster.seats:
                raise Broken(f"{agent} plays and is not among the possible_agents")
        return agents

    def tell(self, news: News) -> Moment:
        """The moment of such news."""
        if self.state is not None and self.state.size:
            self.state = self._next_state(self.state, bool(news.alive))
        return self.roster.moment(news, self.state)

    def masks(self, obs: Mapping[Any, Any], infos: Any) -> dict[Any, Any]:
        """Who may do what, where the environment tells it."""
        infos, seats = infos if isinstance(infos, Mapping) else {}, self.roster.seats
        if not self.roster.masked and not any(infos.values()):
            return {}  # as most do
        told = {agent: seats[agent].reader.mask(obs[agent], infos.get(agent)) for agent in obs if agent in seats}
        return {agent: mask for agent, mask in told.items() if mask is not None}

    def _first_state(self) -> np.ndarray | None:
        try:
            return _numbers(self.env.state())
        except Exception:  # whatever it says: there is none to be had
            return None

    def _next_state(self, last: np.ndarray, alive: bool) -> np.ndarray:
        try:
            return _numbers(self.env.state())
        except Exception as error:
            if alive:
                raise Broken(f"its state() fails, leave it out with --env.state False: {error!r}") from error
            return last  # several environments have none left after the end, where nobody needs it


class ParallelMatch(World):
    """A match of agents that move at once."""

    def reset(self, seed: int) -> Moment:
        obs, infos = self.env.reset(seed=seed)
        self.live = set(self.present())
        self._check(obs, self.live, "observation")
        return self.tell(News(obs, self.live, self.masks(obs, infos), discounts=dict.fromkeys(self.live, 1.0)))

    def step(self, actions: dict[str, np.ndarray]) -> Moment:
        told = self.env.step(self.roster.native(actions, self.present()))
        if len(told) != 5:
            raise Broken(f"step gives {len(told)} things, not observations, rewards, terminations, truncations, infos")
        obs, rewards, terminated, truncated, infos = told
        for given, what in ((rewards, "reward"), (terminated, "termination"), (truncated, "truncation")):
            self._check(given, self.live, what)
        for agent in rewards:
            if agent not in self.roster.seats:
                raise Broken(f"{agent} is rewarded and is not among the possible_agents")
        live = {agent for agent in self.present() if not terminated.get(agent) and not truncated.get(agent)}
        alive, discounts = fates(self.live, live, terminated, truncated)
        self.live = live
        self._check(obs, alive, "observation")
        return self.tell(News(obs, alive, self.masks(obs, infos), rewards, discounts, over=not live))

    def _check(self, given: Mapping[Any, Any], agents: set[Any], what: str) -> None:
        if not agents <= given.keys():
            raise Broken(f"the environment gives no {what} for {min(map(str, agents - given.keys()))}")


def _numbers(state: Any) -> np.ndarray:
    """[S] an environment's own state; an image of bytes between 0 and 1."""
    state = np.asarray(state)
    row = state.astype(np.float32).reshape(-1)
    return row / np.float32(255) if state.dtype == np.uint8 else row

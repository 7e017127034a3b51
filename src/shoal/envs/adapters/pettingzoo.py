"""Adapter for environments whose agents move at once.

PettingZoo's `ParallelEnv`, or anything with its methods.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from ..host.match import Broken, MatchStep
from ..metrics import WON
from . import rules
from .metrics import MetricReader
from .options import AdapterOptions
from .spaces import reader, writer
from .teams import EnvStep, Roster, fates

# MAgent's modules where red and blue fight until one side is dead or time runs out
BATTLES = (
    "magent2.environments.battle.battle",
    "magent2.environments.battlefield.battlefield",
)
SIDES = ("red", "blue")
TERMINATION = "termination"
TRUNCATION = "truncation"
PARTS = "observations, rewards, terminations, truncations, infos"


def frame(env: Any) -> np.ndarray:
    """The environment's picture."""
    if not hasattr(env, "render"):
        raise Broken("the environment draws no picture: it has no render()")
    picture = env.render()
    if not isinstance(picture, np.ndarray) or picture.ndim != 3:
        raise Broken(
            "the environment draws no picture: its render() gives no array of height,"
            " width and colours"
        )
    if 0 in picture.shape or picture.shape[2] not in (3, 4):
        raise Broken(
            f"the environment draws no picture: its render() gives an array of shape"
            f" {picture.shape}, not of height, width and 3 colours"
        )
    with np.errstate(invalid="ignore"):  # NaN, which is no byte either
        drawn = picture.astype(np.uint8)
    if picture.dtype != np.uint8 and not np.array_equal(drawn, picture):
        raise Broken(
            f"its render() gives colours of {picture.dtype} that are no bytes: scale them to 0 …"
            " 255, and give an array of uint8"
        )
    return drawn[..., :3]


class PettingZooMatch:
    """Base of the adapters for both kinds of PettingZoo environments."""

    interface = ""  # PettingZoo's name for it

    def __init__(self, env: Any, options: AdapterOptions):
        agents = rules.agents_of(env, self.interface)
        seen, done = (
            {agent: rules.space_for(env, method, agent, self.interface) for agent in agents}
            for method in ("observation_space", "action_space")
        )
        rules.takes_a_seed(env, self.interface)
        self.env = env
        env.reset(seed=0)  # before a reset, an environment may have no state
        self.state = self._first_state() if options.state else options.unseen
        self.roster = Roster(
            {agent: reader(str(agent), space, options.strict) for agent, space in seen.items()},
            {agent: writer(str(agent), space, options.factored) for agent, space in done.items()},
            options.teams,
            None if self.state is None else self.state.size,
        )
        self.teams = self.roster.teams
        self.metric_reader = MetricReader(env, options, self.teams)
        self.metrics = self.metric_reader.names
        self.infos: Any = {}  # of the last step
        self.live: set[Any] = set()  # agents that are present and may act

    def episode_metrics(self) -> dict[str, float]:
        infos = self.infos if isinstance(self.infos, Mapping) else {}
        return self.metric_reader.read({agent: info for agent, info in infos.items() if info})

    def render(self) -> np.ndarray:
        return frame(self.env)

    def close(self) -> None:
        rules.close(self.env)

    def present(self) -> list[Any]:
        """The agents that the environment lists now."""
        agents = getattr(self.env, "agents", None)
        if not isinstance(agents, list | tuple):
            raise Broken(
                f"{self.interface} has agents, a list of who plays now, and here it is {agents!r}"
            )
        self.known(agents, "plays")
        return list(agents)

    def arrived(self) -> set[Any]:
        """The agents present at an opening."""
        agents = set(self.present())
        if not agents:
            raise Broken("nobody plays after reset: agents must list who does")
        return agents

    def known(self, agents: Collection[Any], does: str) -> None:
        """Raise an error for an agent not in `possible_agents`."""
        if self.roster.names.issuperset(agents):
            return
        agent = next(agent for agent in agents if agent not in self.roster.names)
        raise Broken(f"{agent} {does} and is not among the possible_agents")

    def match_step(self, env_step: EnvStep) -> MatchStep:
        """Convert an `EnvStep` to a `MatchStep`, with the environment's state."""
        if self.state is not None and self.state.size:
            self.state = self._next_state(self.state, bool(env_step.alive))
        return self.roster.match_step(env_step, self.state)

    def masks(self, obs: Mapping[Any, Any], infos: Any) -> dict[Any, Any]:
        """Action masks by agent, where the environment has any."""
        infos = infos if isinstance(infos, Mapping) else {}
        seats = self.roster.seats
        if not self.roster.masked and not any(infos.values()):
            return {}  # the common case
        told = {
            agent: seats[agent].reader.mask(obs[agent], infos.get(agent))
            for agent in obs
            if agent in seats
        }
        return {agent: mask for agent, mask in told.items() if mask is not None}

    def _first_state(self) -> np.ndarray | None:
        try:
            return _numbers(self.env.state())
        except Exception:  # any error means that there is no state
            return None

    def _next_state(self, last: np.ndarray, alive: bool) -> np.ndarray:
        try:
            return _numbers(self.env.state())
        except Exception as error:
            if alive:
                raise Broken(
                    f"its state() fails, leave it out with --env.state False: {error!r}"
                ) from error
            return last  # several environments have no state after the end, where none is needed


class ParallelMatch(PettingZooMatch):
    """A match of agents that move at once."""

    interface = rules.PARALLEL

    def __init__(self, env: Any, options: AdapterOptions):
        super().__init__(env, options)
        self.battle = not self.metrics and options.asked is None and self._is_battle()
        if self.battle:
            self.metrics = tuple(f"{side}/{WON}" for side in SIDES)

    def reset(self, seed: int) -> MatchStep:
        obs, infos = rules.opened(
            self.env.reset(seed=seed), self.interface, "observations and infos"
        )
        self.live = self.arrived()
        obs = rules.by_agent(obs, self.live, "observation")
        return self.match_step(
            EnvStep(obs, self.live, self.masks(obs, infos), discounts=dict.fromkeys(self.live, 1.0))
        )

    def step(self, actions: dict[str, np.ndarray]) -> MatchStep:
        told = self.env.step(self.roster.native(actions, self.present()))
        obs, rewards, terminated, truncated, infos = rules.stepped(told, self.interface, PARTS)
        self.infos = infos
        rewards = rules.by_agent(rewards, self.live, "reward")
        terminated = rules.flags(rules.by_agent(terminated, self.live, TERMINATION), TERMINATION)
        truncated = rules.flags(rules.by_agent(truncated, self.live, TRUNCATION), TRUNCATION)
        live = {
            agent
            for agent in self.present()
            if not terminated.get(agent) and not truncated.get(agent)
        }
        alive, discounts = fates(self.live, live, terminated, truncated)
        self.live = live
        obs = rules.by_agent(
            obs, {agent for agent, discount in discounts.items() if discount}, "observation"
        )
        self.known(obs, "is observed")
        self.known(rewards, "is rewarded")
        return self.match_step(
            EnvStep(obs, alive, self.masks(obs, infos), rewards, discounts, over=not live)
        )

    def episode_metrics(self) -> dict[str, float]:
        """Who won a battle: the side with more agents left."""
        if not self.battle:
            return super().episode_metrics()
        battle = self.env.unwrapped
        red, blue = (battle.env.get_num(handle) for handle in battle.handles)
        return dict(zip(self.metrics, (red > blue, blue > red), strict=True))

    def _is_battle(self) -> bool:
        module = type(getattr(self.env, "unwrapped", self.env)).__module__
        return module in BATTLES and tuple(self.teams) == SIDES


def _numbers(state: Any) -> np.ndarray:
    """`[S]` an environment's own state; uint8 images are scaled to [0,1]."""
    if state is None:  # as float32 it would be NaN
        raise Broken("it gives None")
    state = np.asarray(state)
    row = state.astype(np.float32).reshape(-1)
    return row / np.float32(255) if state.dtype == np.uint8 else row

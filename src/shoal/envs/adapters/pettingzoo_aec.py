"""Adapter for environments whose agents move in turn.

PettingZoo's `AECEnv`, or anything with its methods. At every step all agents act, and only the
action of the agent whose turn it is counts. The others have one legal action, so that nothing is
learnt from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..host.match import Broken, MatchStep
from ..metrics import WON
from . import rules
from .options import AdapterOptions
from .pettingzoo import PettingZooMatch
from .spaces import Vector
from .teams import EnvStep, fates

CLASSIC = "pettingzoo.classic."
DUELS = (  # PettingZoo's modules where a player with a positive reward has won
    "chess",
    "connect_four",
    "go",
    "leduc_holdem",
    "rps",
    "texas_holdem",
    "texas_holdem_no_limit",
    "tictactoe",
)


class TurnsMatch(PettingZooMatch):
    """A match of agents that move in turn."""

    interface = rules.TURNS

    def __init__(self, env: Any, options: AdapterOptions):
        super().__init__(env, options)
        self.earned: dict[Any, float] = {}  # returns of this episode
        self.duel = not self.metrics and options.asked is None and self._zero_sum()
        if self.duel:
            self.metrics = tuple(f"{team}/{WON}" for team in self.teams)

    def reset(self, seed: int) -> MatchStep:
        self.env.reset(seed=seed)
        self.earned = {}
        self.live = self.arrived()
        return self._instant({})

    def step(self, actions: dict[str, np.ndarray]) -> MatchStep:
        mover = self.env.agent_selection
        self.known([mover], "is to move")
        self.env.step(self.roster.native(actions, [mover])[mover])
        # The reward of this one step for all agents: `last()` would return it only at each agent's
        # next turn.
        rewards = dict(rules.by_agent(getattr(self.env, "rewards", None), set(), "reward"))
        if self.duel:
            self.earned = {agent: self.earned.get(agent, 0.0) + rewards[agent] for agent in rewards}
        return self._instant(rewards)

    def episode_metrics(self) -> dict[str, float]:
        """Who won a game of two players: the one with a positive return, if the other has none."""
        if not self.duel:
            return super().episode_metrics()
        one, other = (self.earned.get(line[0].agent, 0.0) for line in self.roster.lines.values())
        return dict(zip(self.metrics, (one > 0 >= other, other > 0 >= one), strict=True))

    def _zero_sum(self) -> bool:
        """Whether it is a zero-sum game of PettingZoo between two teams of one agent."""
        module = type(getattr(self.env, "unwrapped", self.env)).__module__
        alone = [spec.n for spec in self.teams.values()] == [1, 1]
        return alone and module.startswith(CLASSIC) and module.rpartition(".")[2] in DUELS

    def _told(self, what: str) -> dict[Any, bool]:
        """The flags of all present agents."""
        return rules.flags(
            rules.by_agent(getattr(self.env, f"{what}s", None), set(self.present()), what), what
        )

    def _instant(self, rewards: Mapping[Any, Any]) -> MatchStep:
        terminated = self._told("termination")
        truncated = self._told("truncation")
        live = self._living()
        last = {}
        if live:
            last = {
                agent: self.env.observe(agent)
                for agent in self.live - live
                if not terminated[agent]
            }
            self._send_away()
            terminated |= self._told("termination")
            truncated |= self._told("truncation")
            live = self._living()
        alive, discounts = fates(self.live, live, terminated, truncated)
        self.live = live
        obs = last | {agent: self.env.observe(agent) for agent in (live or self.present())}
        self.infos = getattr(self.env, "infos", None)
        masks = self._turn(self.masks(obs, self.infos))
        return self.match_step(EnvStep(obs, alive, masks, rewards, discounts, over=not live))

    def _living(self) -> set[Any]:
        return {agent for agent in self.present() if not self._ended(agent)}

    def _ended(self, agent: Any) -> bool:
        return bool(self.env.terminations[agent] or self.env.truncations[agent])

    def _send_away(self) -> None:
        """Step agents that have ended once more with None, so that they leave."""
        for _ in self.roster.seats:
            if not self.env.agents or not self._ended(self.env.agent_selection):
                return
            self.env.step(None)
        if self.env.agents and self._ended(self.env.agent_selection):
            raise Broken(
                f"{self.env.agent_selection} has ended and does not leave when stepped with None"
            )

    def _turn(self, masks: dict[Any, Any]) -> dict[Any, Any]:
        """The mask of the agent whose turn it is; the others may only take action 0."""
        for agent, seat in self.roster.seats.items():
            if agent != self.env.agent_selection and not isinstance(seat.writer, Vector):
                masks[agent] = seat.writer.idle
        return masks

"""A trained policy, ready to play."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from . import algorithms, runs
from .algorithms import Algorithm
from .config import Config, fill
from .devices import setup
from .evaluate import Episodes, evaluator
from .trainer import clock
from .types import Discrete, ShoalError, Spec, View, nearest


class Player:
    """All teams of a finished run, playing one game at a time. It remembers what they carry from step to step."""

    def __init__(
        self,
        config: Config,
        learners: dict[str, Any],
        steps: int,
        seed: int = 0,
        played_by: dict[str, Algorithm] | None = None,
    ):
        self.config, self.learners, self.steps = config, learners, steps
        self.algorithms, self.teams = played_by or config.algorithms, config.game.teams
        self.clock = clock(config, steps)
        self.key = jax.random.key(seed)
        self._acts = {team: jax.jit(algorithm.act, static_argnums=5) for team, algorithm in self.algorithms.items()}
        self.reset()

    def reset(self) -> None:
        """A new episode begins: forget the last one."""
        self.carries = {team: algorithm.carry(self.learners[team], 1) for team, algorithm in self.algorithms.items()}
        self.first = dict.fromkeys(self.algorithms, True)

    def act(
        self, observations: dict[str, Any], legal: dict[str, Any] | None = None, greedy: bool = True
    ) -> dict[str, Any]:
        """An action for every agent that observes something; `legal` may mask actions, by agent."""
        known = [agent for spec in self.teams.values() for agent in spec.agents]
        for agent in [*observations, *(legal or {})]:
            if agent not in known:
                raise ShoalError(f"there is no agent {agent!r} in {self.config.env}: its agents are {', '.join(known)}")
        actions = {}
        for team, spec in self.teams.items():
            if any(agent in observations for agent in spec.agents):
                self.key, key = jax.random.split(self.key)
                view = _view(spec, observations, legal or {}, self.first[team])
                act = partial(self._acts[team], self.learners[team], key, view)
                decision = act(self.carries[team], self.clock, greedy)
                self.carries[team], self.first[team] = decision.carry, False
                actions |= _by_agent(spec, np.asarray(decision.action[0]), observations)
        return actions

    def against(self, teams: Mapping[str, str | tuple[str, dict[str, Any]]]) -> Player:
        """The same player, but for teams whose place another takes: `against({"agent": "frozen:runs/x"})`."""
        made, learners = dict(self.algorithms), dict(self.learners)
        for team, one in teams.items():
            kind, options = algorithms.chosen(one if isinstance(one, str) else one[0])
            options |= {} if isinstance(one, str) else one[1]
            if team not in self.teams:
                hint, sides = nearest(team, self.teams), ", ".join(self.teams)
                raise ShoalError(f"{self.config.env} has no team {team!r}{hint}: its teams are {sides}")
            if kind not in algorithms.FIXED:
                raise ShoalError(f"{kind.name} must be trained before it can play: take random or frozen:<run>")
            made[team] = kind(fill(kind.Config, options, kind.name), self.teams[team])
            made[team].join(team, made, 1, None)
            learners[team] = made[team].init(np.random.default_rng(0))
        return Player(self.config, learners, self.steps, played_by=made)

    def evaluate(self, episodes: int = 100, greedy: bool = True, seed: int = 0) -> Episodes:
        """Whole episodes of the game it was trained on."""
        c = self.config
        how = (c.workers, c.settings.patience)
        with contextlib.closing(evaluator(c.game, self.algorithms, episodes, greedy, *how)) as play:
            return play(self.learners, seed, self.clock)


def load(run: str | Path) -> Player:
    """The policies a run ended with."""
    setup()
    return Player(*runs.load_policy(Path(run)))


def outcomes(played: Episodes) -> dict[str, dict[str, float]]:
    """The shares of episodes that each of two teams won (earned more than the other), drew and lost."""
    if len(played.returns) != 2:
        return {}
    one, other = played.returns
    margin = played.returns[one].mean(1) - played.returns[other].mean(1)
    shares = [float(np.mean(outcome)) for outcome in (margin > 0, margin == 0, margin < 0)]
    words = ("win", "draw", "loss")
    return {one: dict(zip(words, shares, strict=True)), other: dict(zip(words, shares[::-1], strict=True))}


def _view(spec: Spec, observations: dict[str, Any], legal: dict[str, Any], first: bool) -> View:
    """What a team of one game receives; agents that observe nothing are absent."""
    obs = np.zeros((1, spec.n, spec.obs), np.float32)
    allowed = np.zeros((1, spec.n, spec.action.size), bool)
    sizes = spec.obs_sizes or (spec.obs,) * spec.n
    for i, (agent, size) in enumerate(zip(spec.agents, sizes, strict=True)):
        if agent in observations:
            seen = np.asarray(observations[agent], np.float32).reshape(-1)
            if len(seen) != size:
                raise ShoalError(f"{agent} observes {size} numbers, not {len(seen)}")
            obs[0, i, :size] = seen
        mask = legal.get(agent, np.ones(_actions(spec, i), bool))
        allowed[0, i, : len(mask)] = mask
    alive = np.array([[agent in observations for agent in spec.agents]])
    nothing = np.zeros((1, spec.n), np.float32)
    state = np.zeros((1, spec.state), np.float32)  # critics see it, actors never do
    view = View(obs, state, allowed, alive, np.array([first]), nothing, nothing + 1)  # type: ignore[arg-type]
    return jax.tree.map(jnp.asarray, view)


def _actions(spec: Spec, i: int) -> int:
    return spec.action_sizes[i] if spec.action_sizes else spec.action.size


def _by_agent(spec: Spec, action: np.ndarray, observations: dict[str, Any]) -> dict[str, Any]:
    """Each present agent's action as its environment takes it: an int, or a vector of its own size."""
    rows = {agent: i for i, agent in enumerate(spec.agents) if agent in observations}
    if isinstance(spec.action, Discrete):
        return {agent: int(action[i]) for agent, i in rows.items()}
    return {agent: action[i, : _actions(spec, i)] for agent, i in rows.items()}

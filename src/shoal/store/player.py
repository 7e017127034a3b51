"""A trained policy, ready to play."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .. import algorithms
from ..algorithms import Algorithm
from ..config.config import Config
from ..config.trust import Trust, of_files, parts, trusted
from ..devices import setup
from ..engine.episodes import Episodes
from ..engine.evaluate import evaluator
from ..envs.host.arena import Alone
from ..errors import ShoalError, did_you_mean
from ..export import write
from ..export.program import Policy
from ..export.recording import recorded
from ..export.write import Exported
from ..options import fill
from ..types import View
from . import policy_store
from .observations import Masks, by_agent, observation_sizes, read


class Player:
    """The policies of a run, playing one game or a batch of games; it keeps the agents' carries."""

    def __init__(
        self,
        config: Config,
        learners: dict[str, Any],
        steps: int,
        seed: int = 0,
        agents: Iterable[str] = (),
        substitutes: dict[str, Algorithm] | None = None,
    ):
        self.config = config
        self.learners = learners
        self.steps = steps
        self.seed = seed
        self.substitutes = substitutes or {}  # by team that they replace
        self.algorithms = config.algorithms | self.substitutes
        self.teams = config.sides
        self.agents = tuple(agents) or tuple(
            agent for spec in self.teams.values() for agent in spec.agents
        )
        self.clock = config.clock(steps)
        self.key = jax.random.key(seed)
        self._acts = {
            team: jax.jit(algorithm.act, static_argnums=5)
            for team, algorithm in self.algorithms.items()
        }
        self.reset()

    def __repr__(self) -> str:
        teams = [team for team, spec in self.teams.items() if set(spec.agents) & set(self.agents)]
        players = ", ".join(f"{team}={self.algorithms[team].name}" for team in teams)
        return f"<Player of {self.config.env}: {players}, trained for {self.steps:,} steps>"

    def reset(self, rows: Any = None) -> None:
        """Begin new episodes in all games, or only in `rows` (indices or a mask)."""
        if rows is None:
            self.games = 0
            self.carries = {}
            self.first = {}
            return
        try:
            for first in self.first.values():
                # numpy makes an empty list an array of floats
                first[np.asarray(rows, None if np.size(rows) else int)] = True
        except (IndexError, ValueError):
            games = self.games
            raise ShoalError(
                f"rows must be numbers of games below {games}, or a mask of all {games} games"
            ) from None

    def act(
        self,
        observations: Masks,
        legal: Masks | None = None,
        greedy: bool = True,
        alive: Masks | None = None,
    ) -> dict[str, Any]:
        """An action for every agent with an observation: `[obs]` of one game, or `[B,obs]` of B
        games.

        By agent, `legal` masks actions (`[A]` or `[B,A]`), and `alive [B]` says in which games the
        agent is present.
        """
        # check all teams before any decides: a refused call must not change carries
        seen = read(self.teams, self.agents, observations, legal, alive)
        self._fit(seen.games)
        actions = {}
        for team, view in seen.views.items():
            action = self._decide(team, view, greedy)
            actions |= by_agent(self.teams[team], action, seen.rows[team], seen.batched)
        return actions

    def _fit(self, games: int) -> None:
        """Refuse another number of games while carries are kept; 0 means that nobody observes."""
        if games in (0, self.games):
            return
        if any(leaf.size for leaf in jax.tree.leaves(self.carries)):
            raise ShoalError(
                f"these are observations of {games} games, the last were of {self.games}:"
                f" reset() first"
            )
        self.reset()
        self.games = games

    def _decide(self, team: str, view: View, greedy: bool) -> np.ndarray:
        """A team's actions `[B,N,…]`."""
        learner = self.learners[team]
        if team not in self.carries:
            self.carries[team] = self.algorithms[team].carry(learner, self.games)
            self.first[team] = np.ones(self.games, bool)
        self.key, key = jax.random.split(self.key)
        view = jax.tree.map(jnp.asarray, view._replace(first=self.first[team].copy()))
        decision = self._acts[team](learner, key, view, self.carries[team], self.clock, greedy)
        self.carries[team] = decision.carry
        self.first[team][:] = False
        return np.asarray(decision.action)

    def team(self, name: str) -> Player:
        """A player of that team alone."""
        if name not in self.teams:
            hint = did_you_mean(name, self.teams)
            sides = ", ".join(self.teams)
            raise ShoalError(f"{self.config.env} has no team {name!r}{hint}: its teams are {sides}")
        return self._only(self.teams[name].agents)

    def agent(self, name: str) -> Player:
        """A player of that agent alone, with its own parameters; it needs no other agent's
        observations."""
        for team, spec in self.teams.items():
            if name in spec.agents:
                if spec.n > 1 and self.algorithms[team].sees_mates:
                    kind = self.algorithms[team].name
                    raise ShoalError(
                        f"{kind}'s agents need what their teammates observe, say or just did: take"
                        f" team({team!r}) instead"
                    )
                return self._only((name,))
        raise ShoalError(
            f"there is no agent {name!r}{did_you_mean(name, self.agents)}: there are"
            f" {', '.join(self.agents)}"
        )

    def _only(self, agents: tuple[str, ...]) -> Player:
        return Player(self.config, self.learners, self.steps, self.seed, agents, self.substitutes)

    def warm(self, games: int | None = None, greedy: bool = True) -> Player:
        """Compile now what the first `act` would compile, for one game or a batch; return this
        player."""
        remembered = self.games, self.carries, self.first, self.key
        self.reset()
        rows = () if games is None else (games,)
        sizes = observation_sizes(self.teams)
        self.act({agent: np.zeros((*rows, sizes[agent])) for agent in self.agents}, greedy=greedy)
        self.games, self.carries, self.first, self.key = remembered
        return self

    def save(self, path: str | Path) -> Path:
        """Write a policy folder for `load`, with only the acting part; replaces a policy folder at
        `path`."""
        path = Path(path)
        if path.exists() and not (path / policy_store.ABOUT).is_file():
            raise ShoalError(f"{path} exists already and is no policy: choose another place")
        if self.substitutes:
            raise ShoalError(
                f"others play for {', '.join(self.substitutes)} here: save the player as it was"
                f" loaded"
            )
        everyone = [agent for spec in self.teams.values() for agent in spec.agents]
        agents = () if list(self.agents) == everyone else self.agents
        policy_store.save(path, self.config, self._playing(), self.steps, agents=agents)
        return path

    def export(self, path: str | Path, to: str = "onnx", greedy: bool = True) -> Exported:
        """Write the policy for use without Shoal, after comparing it with this one: a folder, with
        a folder for each team where several play; replaces an export at `path`."""
        try:
            self.complete()
            seen = recorded(self.config, self.algorithms, self.learners, self.clock)
            unplayed = ""
        except ShoalError as error:  # the environment may be somewhere else
            seen = {}
            unplayed = str(error)
        policies = [
            Policy(team, self.algorithms[team], learner, self.clock, self.agents, greedy)
            for team, learner in self._playing().items()
        ]
        about = {"env": self.config.env, "steps": self.steps}
        done = write.export(policies, seen, Path(path), to, about)
        return done._replace(unplayed=unplayed)

    def complete(self) -> None:
        """Refuse to play whole games if an agent is missing."""
        missing = [team for team in self.teams if team not in self.learners]
        if missing:
            raise ShoalError(
                f"nobody plays for {', '.join(missing)}, as this policy is of"
                f" {', '.join(self.agents)} alone: load the policies of all teams"
            )

    def with_critics(self, run: Path) -> Player:
        """This player with all that its teams learnt, from a checkpoint of the same step; itself if
        the run has none."""
        whole = policy_store.whole(run, self.config, self.steps)
        learners = self.learners | whole
        return Player(self.config, learners, self.steps, self.seed, self.agents, self.substitutes)

    def _playing(self) -> dict[str, Any]:
        """Learners of the teams that this player plays."""
        ours = [team for team, spec in self.teams.items() if set(spec.agents) & set(self.agents)]
        return {team: self.learners[team] for team in ours}

    def __reduce__(self) -> tuple:
        """Pickle the player with its carries; programs are compiled anew when it is loaded."""
        substitutes = {
            team: (algorithms.id_of(type(one)), one.config, one.origin())
            for team, one in self.substitutes.items()
        }
        memory = (
            self.games,
            jax.device_get(self.carries),
            self.first,
            jax.random.key_data(self.key),
        )
        config = self.config.to_json()
        trust = self.config.trust
        what = (
            config,
            dataclasses.replace(trust, named=trust.named | set(parts(config))),
            jax.device_get(self.learners),
            self.steps,
            self.seed,
        )
        return _copied, (*what, self.agents, substitutes, jax.device_get(memory))

    def against(self, teams: Mapping[str, str | tuple[str, dict[str, Any]]]) -> Player:
        """A copy with substitutes for some teams: `against({"agent": "frozen:runs/x"})`."""
        made = dict(self.algorithms)
        learners = dict(self.learners)
        substitutes = dict(self.substitutes)
        for team, one in teams.items():
            name, options = algorithms.parse_algorithm(one if isinstance(one, str) else one[0])
            kind = algorithms.find(name)
            options |= {} if isinstance(one, str) else one[1]
            if team not in self.teams:
                hint = did_you_mean(team, self.teams)
                sides = ", ".join(self.teams)
                raise ShoalError(
                    f"{self.config.env} has no team {team!r}{hint}: its teams are {sides}"
                )
            if kind.needs_training:
                raise ShoalError(
                    f"{name} must be trained before it can play: take random or frozen:<run>"
                )
            made[team] = kind(fill(kind.Config, options, name), self.teams[team])
            made[team].join(team, made, 1, None)
            learners[team] = made[team].init(np.random.default_rng(0))
            substitutes[team] = made[team]
        return Player(self.config, learners, self.steps, self.seed, substitutes=substitutes)

    def evaluate(self, episodes: int = 100, greedy: bool = True, seed: int = 0) -> Episodes:
        """Play whole episodes of the game it was trained on, with all teams."""
        c = self.config
        self.complete()
        alone = Alone() if c.settings.alone else None
        with contextlib.closing(
            evaluator(c.game, self.algorithms, episodes, greedy, c.workers, c.settings, alone)
        ) as play:
            return play(self.learners, seed, self.clock)


def load(run: str | Path, best: bool = False, seed: int = 0, trust: bool = False) -> Player:
    """The policies a run ended with, or its `best`; or those in a policy folder or a checkpoint.
    `seed` decides what is drawn where actions are sampled; `trust` lets the folder name algorithms,
    nets and environments of somebody's own."""
    setup()
    with of_files(trusted(trust)):
        config, learners, steps, agents = policy_store.load(Path(run), best, trusted(trust))
    return Player(config, learners, steps, seed, agents)


def _copied(
    config: dict[str, Any],
    trust: Trust,
    learners: dict[str, Any],
    steps: int,
    seed: int,
    agents: tuple[str, ...],
    substitutes: dict[str, tuple[str, Any, Any]],
    memory: tuple,
) -> Player:
    """Rebuild a player from what `Player.__reduce__` returned."""
    whole = Config.of_policy(config, trust)
    made = {
        team: algorithms.find(name)(own, whole.sides[team])
        for team, (name, own, _) in substitutes.items()
    }
    for team, (_, _, origin) in substitutes.items():
        made[team].join(team, whole.algorithms | made, 1, origin)
    player = Player(whole, learners, steps, seed, agents, made)
    player.games, player.carries, player.first, key = memory
    player.key = jax.random.wrap_key_data(jnp.asarray(key))
    return player

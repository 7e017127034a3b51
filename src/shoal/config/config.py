"""What a run is made of: a game, an algorithm for each of its teams, and the run's own settings.

A hyper-parameter is written once, as a field of a frozen dataclass with its type, default and
meaning. Flags, help, presets, the saved config and the tables of the docs all come from there. A
`Config` that exists can be run.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from .. import algorithms, envs
from ..algorithms import Algorithm
from ..clusters import LOCAL
from ..devices import choices, usable
from ..envs.host.match import Hosted
from ..envs.metrics import checked, declared
from ..errors import ShoalError, did_you_mean
from ..options import WHOLE, check_numbers, entry, fill
from ..types import Box, Clock, MultiDiscrete, Share, Spec
from .saved import as_saved
from .settings import SHORT, Settings
from .trust import COMPILED, EVERYTHING, NOTHING, Trust


@dataclass(frozen=True)
class Config:
    """A complete description of a run, checked when it is made."""

    env: str
    options: dict[str, Any] = field(default_factory=dict)  # of the game
    # team -> algorithm and its own config
    teams: dict[str, tuple[str, Any]] = field(default_factory=dict)
    settings: Settings = field(default_factory=Settings)
    # team specs of an external game, if saved
    specs: dict[str, Spec] | None = field(default=None, compare=False)
    # team -> saved `Algorithm.origin`
    origins: dict[str, Any] = field(default_factory=dict, compare=False)
    # restricted if a file named the environment
    trust: Trust = field(default=EVERYTHING, compare=False)
    # metric names of an external game, if saved
    metric_names: tuple[str, ...] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        self._check_teams()
        s = self.settings
        for config in (s, *(config for _, config in self.teams.values())):
            check_numbers(config)
        for algorithm in self.algorithms.values():
            algorithm.check(self.share)
            if algorithm.sees_state and not algorithm.spec.state:
                raise ShoalError(
                    f"{algorithm.name} learns from the state, and that of {self.env} is empty:"
                    f" leave it out, so that"
                    " all observations together take its place (--env.state False)"
                )
        if s.cluster != LOCAL and not s.grouped and not self.hosted:
            raise ShoalError(
                f"a cluster trains several seeds, or plays games that run on hosts, and those of"
                f" {self.env} are compiled: ask for --seeds 5, or for --seeds 7, if one is enough"
            )
        if s.staleness:
            self._check_staleness()
        if s.steps < s.games * s.window:
            raise ShoalError(
                f"{s.steps} steps are too few for one update of {s.games} games x {s.window} steps:"
                f" ask for at least {s.games * s.window} steps, or lower games or window"
            )

    def _check_staleness(self) -> None:
        if not self.hosted:
            raise ShoalError(
                f"staleness lets games on the host go on while the learner learns, and those of"
                f" {self.env} are compiled with it: set staleness to 0"
            )
        if self.settings.devices > 1:
            raise ShoalError(
                f"with staleness one device learns while games go on, not"
                f" {self.settings.devices!r}: set devices to 1"
            )
        for team, algorithm in self.algorithms.items():
            if not algorithm.bears_staleness:
                raise ShoalError(
                    f"{algorithm.name} of team {team!r} must know who played each window: set"
                    f" staleness to 0"
                )

    def _check_teams(self) -> None:
        check_teams(self.env, self.sides, self.teams)
        for name, config in self.teams.values():
            if not isinstance(config, algorithms.find(name).Config):
                raise ShoalError(
                    f"{name} is set by a {algorithms.find(name).Config.__name__}, not {config!r}"
                )
        self._check_best()

    def _check_best(self) -> None:
        best = self.settings.best
        if best in ("", *self.sides) or best in self.metrics:
            return
        known = [*self.sides, *self.metrics]
        what = "a team or a metric" if self.metrics else "a team"
        raise ShoalError(
            f"best must be {what} of {self.env}, not {best!r}{did_you_mean(best, known)}: it has"
            f" {', '.join(known)}"
        )

    @cached_property
    def sides(self) -> dict[str, Spec]:
        """Specs of all teams: the saved ones, so that a policy acts without an environment, else
        the game's."""
        return self.specs or self.game.teams

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """Names of the environment's own metrics: the saved ones, else the game's."""
        return declared(self.game) if self.metric_names is None else self.metric_names

    @cached_property
    def game(self) -> Any:
        """The environment, opened on first use; only here does its name become running code."""
        self.trust.check(self.env, self.options)
        game = opened(self.env, self.options, self.settings, self.specs, self.metric_names)
        if self.specs and not isinstance(game, Hosted) and game.teams != self.specs:
            raise ShoalError(
                f"{self.env} is not what it was when this was saved: install the version of then"
            )
        return game

    @cached_property
    def algorithms(self) -> dict[str, Algorithm]:
        """Every team's algorithm, in the order of the game's teams."""
        chosen = {team: self.teams[team] for team in self.sides}
        made = {
            team: algorithms.find(name)(config, self.sides[team])
            for team, (name, config) in chosen.items()
        }
        for team, algorithm in made.items():
            algorithm.join(team, made, self.settings.games, self.origins.get(team))
        return made

    @cached_property
    def devices(self) -> int:
        """Number of devices that share the games: the most that leave each enough games to learn
        from."""
        s = self.settings
        # with staleness one device learns: several on a CPU deadlocked while games were played
        possible = choices(s.games, 1 if s.staleness else s.devices)
        return next((count for count in possible if self._suffices(count)), possible[-1])

    def _suffices(self, devices: int) -> bool:
        try:
            for algorithm in self.algorithms.values():
                algorithm.check(self._share(devices))
        except ShoalError:
            return False
        return True

    @property
    def hosted(self) -> bool:
        """Whether the game runs outside the compiled program."""
        return not _compiled(self.env)

    @cached_property
    def workers(self) -> int:
        """Number of processes that step the games: as asked, else one per core.

        A short run has one by default: starting more would take too long."""
        s = self.settings
        if s.workers >= 0:
            return min(s.workers, s.games)
        return min(len(usable()), s.games) if s.steps > SHORT else 1

    @property
    def share(self) -> Share:
        """The part of the run that falls to each device."""
        return self._share(self.devices)

    def _share(self, devices: int) -> Share:
        s = self.settings
        return Share(s.games // devices, s.window, devices, s.steps)

    def clock(self, steps: int) -> Clock:
        """The clock after `steps` environment steps."""
        done = np.float32(steps)
        return Clock(done, np.float32(done / np.float32(self.settings.steps)))  # type: ignore[arg-type]

    @property
    def label(self) -> str:
        """The algorithm's name, or the names of all teams' algorithms."""
        names = [algorithm.name for algorithm in self.algorithms.values()]
        return "+".join(names if len(set(names)) > 1 else names[:1])

    def to_json(self) -> dict[str, Any]:
        """The config as plain JSON values."""
        teams = {
            t: {"algorithm": name, "options": dataclasses.asdict(c)}
            for t, (name, c) in self.teams.items()
        }
        for team, algorithm in self.algorithms.items():
            teams[team] |= {"origin": algorithm.origin()} if algorithm.origin() else {}
        # so that its policies load where the environment is not installed
        if not envs.ours(self.env):
            for team, spec in self.sides.items():
                teams[team]["spec"] = spec.to_json()
        return {
            "env": self.env,
            "options": self.options,
            "teams": teams,
            **({"metrics": list(self._saved)} if self._saved else {}),
            "settings": dataclasses.asdict(self.settings),
        }

    @property
    def _saved(self) -> tuple[str, ...]:
        """The metric names to save: those of an external game, as far as they are known."""
        known = self.metric_names is not None or not self.specs
        return self.metrics if known and self.env not in envs.GAMES else ()

    @classmethod
    def from_json(cls, plain: Any, trust: Trust = NOTHING) -> Config:
        """Build a config to run from what `to_json` wrote; report what is wrong with anything
        else."""
        trust.check(entry(plain, "env", str), entry(plain, "options", dict))
        trust.check_parts(plain)
        trust.check_place(plain)
        return cls._read(plain, trust)

    @classmethod
    def of_policy(cls, plain: Any, trust: Trust = NOTHING) -> Config:
        """Build a config to act with: opens no environment, so the JSON must hold the teams' specs.

        Only compiled games were ever saved without specs."""
        env = entry(plain, "env", str)
        teams = entry(plain, "teams", dict)
        outside = not envs.ours(env) and env.partition(":")[0] not in COMPILED
        saved = [isinstance(one, dict) and "spec" in one for one in teams.values()]
        if outside and not (saved and all(saved)):
            raise ShoalError(
                f"'spec' is missing there, which says who plays {env!r}: no policy"
                f" is read without it"
            )
        trust.check_parts(plain)
        return cls._read(plain, trust, playing=False)

    @classmethod
    def _read(cls, plain: Any, trust: Trust, playing: bool = True) -> Config:
        sides = entry(plain, "teams", dict)
        teams = {team: as_saved(one) for team, one in sides.items()}
        origins = {team: one["origin"] for team, one in sides.items() if "origin" in one}
        specs = {team: _spec(team, one["spec"]) for team, one in sides.items() if "spec" in one}
        options = entry(plain, "options", dict)
        settings = entry(plain, "settings", dict)
        env = entry(plain, "env", str)
        made = parts(env, teams, options, settings, playing)
        native = bool(envs.ours(env))
        metric_names = None if native else _metric_names(env, plain, teams)
        return cls(*made, None if native else specs or None, origins, trust, metric_names)

    @classmethod
    def build(
        cls,
        env: str,
        teams: dict[str, tuple[str, dict]],
        options: dict,
        settings: dict,
        specs: dict[str, Spec] | None = None,
        metric_names: tuple[str, ...] | None = None,
    ) -> Config:
        """Build a config from plain values; `specs` are the team specs, where known."""
        made = parts(env, teams, options, settings)
        native = bool(envs.ours(env))
        return cls(
            *made, None if native else specs or None, metric_names=None if native else metric_names
        )


def check_teams(env: str, sides: Collection[str], given: Collection[str]) -> None:
    """Refuse teams that the game does not have, and missing ones."""
    for team in given:
        if team not in sides:
            hint = did_you_mean(team, sides)
            raise ShoalError(f"{env} has no team {team!r}{hint}: its teams are {', '.join(sides)}")
    for team in sides:
        if team not in given:
            raise ShoalError(
                f"team {team!r} of {env} has no algorithm: add --team {team}=<algorithm>"
                f" (in Python teams={{{team!r}: …}})"
            )


def opened(
    env: str,
    options: dict[str, Any],
    settings: Settings,
    specs: dict[str, Spec] | None = None,
    metric_names: tuple[str, ...] | None = None,
) -> Any:
    """Open a game as a run does.

    A game on the host gets the run's patience, and runs in this process only if asked to."""
    game = envs.make(env, **options)
    if not isinstance(game, Hosted):
        return game
    return dataclasses.replace(
        game,
        specs=specs,
        metric_names=metric_names,
        patience=settings.patience,
        watched=settings.workers != 0,
    )


def _compiled(env: str) -> bool:
    return env.partition(":")[0] in COMPILED or envs.find(env) is not None


def parts(
    env: str,
    teams: dict[str, tuple[str, dict]],
    options: dict,
    settings: dict,
    playing: bool = True,
) -> tuple[str, dict[str, Any], dict[str, tuple[str, Any]], Settings]:
    """Check plain values from a file or a caller, and return the parts of a config.

    An external game is looked up only if it is played: a policy acts without it."""
    if found := envs.find(env) if playing else envs.ours(env):
        game, meant = found
        options = dataclasses.asdict(fill(game, meant | options, env))
    chosen = {
        team: (name, fill(algorithms.find(name).Config, own, name))
        for team, (name, own) in teams.items()
    }
    return env, options, chosen, fill(Settings, settings, "a run")


def _metric_names(
    env: str, plain: dict[str, Any], teams: Collection[str]
) -> tuple[str, ...] | None:
    """The saved metric names.

    If none were saved: no names for a game on the host, None (ask the game) for a compiled one."""
    if "metrics" in plain:
        return checked(plain["metrics"], teams, env)
    return None if env.partition(":")[0] in COMPILED else ()


def _spec(team: str, plain: Any) -> Spec:
    """Read a team's saved spec."""
    with contextlib.suppress(AttributeError, KeyError, TypeError, ValueError):
        spec = Spec.from_json(plain)
        if _sound(spec):
            return spec
    raise ShoalError(
        f"the spec of team {team!r} is not as shoal saved it: restore the file as it was"
    )


def _sound(spec: Spec) -> bool:
    """Whether a spec is possible: sizes are counts, agent names differ, sizes are per agent or
    absent."""
    each = (spec.obs_sizes, spec.action_sizes)
    parts = spec.action.parts if isinstance(spec.action, MultiDiscrete) else ()
    sizes = (
        spec.obs,
        spec.state,
        spec.rivals,
        spec.action.size,
        *spec.pixels,
        *parts,
        *(size for own in each for size in own),
    )
    bounds = [spec.action.low, spec.action.high] if isinstance(spec.action, Box) else []
    return (
        all(type(size) is int and 0 <= size <= WHOLE for size in sizes)
        # raises if `low` and `high` differ in length
        and not np.isnan(np.array(bounds, float)).any()
        and all(isinstance(agent, str) for agent in spec.agents)
        and 0 < len(set(spec.agents)) == spec.n
        and spec.action.size > 0
        and all(len(own) in (0, spec.n) for own in each)
        and max(spec.obs_sizes, default=spec.obs) == spec.obs
        and max(spec.action_sizes, default=spec.action.size) == spec.action.size
        and (not spec.pixels or (len(spec.pixels) == 3 and math.prod(spec.pixels) == spec.obs))
        and type(spec.joined) is bool
        and type(spec.entities) is str
    )

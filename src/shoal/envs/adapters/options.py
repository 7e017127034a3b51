"""The adapters' own options, and how they change a match of any kind."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ...errors import ShoalError, did_you_mean
from ...options import fill
from ..host.match import Match, MatchStep
from ..metrics import split


@dataclass(frozen=True)
class AdapterOptions:
    """The adapter's own options; every other goes to the environment."""

    teams: str = ""
    """Who plays together: empty for by the agents' names (red_0 plays for red), all, each, or
    red:red_*;blue:blue_0."""
    limit: int = 0
    """Steps after which an episode is cut; 0 for the environment's own end."""
    state: bool | None = True
    """Whether to take the environment's own state, if it has one; else the state is all
    observations side by side."""
    strict: bool = False
    """Hold every observation against the space it was promised in, as check-env does; slow."""
    factored: bool = False
    """Keep the parts of MultiDiscrete and MultiBinary actions, for policies with a head for each,
    also where their combinations could be listed: up to 4096."""
    swap: bool = False
    """Two equal teams exchange seats from episode to episode, by the episode's seed."""
    metrics: str | list[str] | None = None
    """Numbers of an episode's last infos to log, as won,score or won=battle_won; None is what the
    environment declares."""

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise ShoalError(f"limit must be a whole number of at least 0, not {self.limit!r}")

    @property
    def asked(self) -> dict[str, str] | None:
        """The info key of each metric asked for; None if none is."""
        return _keys(self.metrics)

    @property
    def unseen(self) -> np.ndarray | None:
        """An empty state, if the state is switched off; else None."""
        return np.zeros(0, np.float32) if self.state is None else None

    @staticmethod
    def split(options: dict[str, Any]) -> tuple[AdapterOptions, dict[str, Any]]:
        """Split options into the adapter's and the environment's."""
        ours = {option.name for option in fields(AdapterOptions)}
        return (
            fill(
                AdapterOptions,
                {name: value for name, value in options.items() if name in ours},
                "the adapter",
            ),
            {name: value for name, value in options.items() if name not in ours},
        )

    def arrange(self, match: Match) -> Match:
        """Apply the options for metrics, limit and swapping to a match."""
        if self.asked is not None:
            _choose(match, tuple(self.asked))
        if self.limit:
            match = Limited(match, self.limit)
        return Swapped(match) if self.swap else match


def _keys(metrics: str | list[str] | None) -> dict[str, str] | None:
    """Parse `won=battle_won,score` into the info key of each metric."""
    if metrics is None:
        return None
    words = metrics.split(",") if isinstance(metrics, str) else metrics
    pairs = [word.strip().partition("=") for word in words if word.strip()]
    return {name: key or split(name)[1] for name, _, key in pairs}


def _choose(match: Match, names: tuple[str, ...]) -> None:
    """Restrict a match to these metrics."""
    known = getattr(match, "metrics", ())
    for name in names:
        if name not in known:
            raise ShoalError(
                f"the environment has no metric {name!r}{did_you_mean(name, known)}: it has"
                f" {', '.join(known) or 'none'}"
            )
    match.metrics = names  # type: ignore[attr-defined]


class Limited:
    """A match that is truncated after `limit` steps."""

    def __init__(self, match: Match, limit: int):
        self.match = match
        self.limit = limit
        self.taken = 0
        self.teams = match.teams
        self.metrics = getattr(match, "metrics", ())
        self.render = match.render
        self.close = match.close

    def reset(self, seed: int) -> MatchStep:
        self.taken = 0
        return self.match.reset(seed)

    def step(self, actions: dict[str, np.ndarray]) -> MatchStep:
        self.taken += 1
        instant = self.match.step(actions)
        return instant._replace(over=instant.over or self.taken >= self.limit)

    def episode_metrics(self) -> dict[str, float]:
        return self.match.episode_metrics()  # type: ignore[attr-defined]


class Swapped:
    """A match of two equal teams that swap places when the seed is odd.

    The state ends with a 1 if they have.
    """

    def __init__(self, match: Match):
        names = list(match.teams)
        specs = list(match.teams.values())
        if (
            len(specs) != 2
            or replace(specs[0], agents=()) != replace(specs[1], agents=())
            or specs[0].n != specs[1].n
        ):
            raise ShoalError(
                f"swap needs two teams of equal agents, and here play"
                f" {', '.join(names)}: leave it out"
            )
        self.match = match
        self.swapped = False
        self.teams = {
            team: replace(spec, state=spec.state + 1) for team, spec in match.teams.items()
        }
        self.other = dict(zip(names, reversed(names), strict=True))
        self.metrics = getattr(match, "metrics", ())
        for name in self.metrics:
            if self._others(name) not in self.metrics:
                raise ShoalError(
                    f"swap needs metrics of both teams, and there is {name!r} alone: leave one out"
                )
        self.render = match.render
        self.close = match.close

    def reset(self, seed: int) -> MatchStep:
        self.swapped = seed % 2 == 1
        return self._seen(self.match.reset(seed))

    def step(self, actions: dict[str, np.ndarray]) -> MatchStep:
        return self._seen(self.match.step(self._seated(actions)))

    def episode_metrics(self) -> dict[str, float]:
        said = self.match.episode_metrics()  # type: ignore[attr-defined]
        told = {name: self._others(name) if self.swapped else name for name in self.metrics}
        return {name: said[other] for name, other in told.items() if other in said}

    def _others(self, name: str) -> str:
        """The other team's metric of that word; a metric of the whole game stays."""
        team, word = split(name)
        return f"{self.other.get(team, team)}/{word}" if team else name

    def _seen(self, instant: MatchStep) -> MatchStep:
        state = np.append(instant.state, np.float32(self.swapped))
        return instant._replace(teams=self._seated(instant.teams), state=state)

    def _seated(self, by_team: dict[str, Any]) -> dict[str, Any]:
        if not self.swapped:
            return by_team
        return {team: by_team[other] for team, other in self.other.items()}

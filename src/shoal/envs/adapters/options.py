"""The adapter's own options, and what they do to a match of any kind."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ...errors import ShoalError
from ..host.match import Match, MatchStep


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
    swap: bool = False
    """Two equal teams exchange seats from episode to episode, by the episode's seed."""

    def __post_init__(self) -> None:
        if not isinstance(self.teams, str):
            raise ShoalError(
                f"teams must be a text like red:red_0,red_1;blue:blue_*, not {self.teams!r}"
            )
        if not isinstance(self.limit, int) or isinstance(self.limit, bool) or self.limit < 0:
            raise ShoalError(f"limit must be a whole number of at least 0, not {self.limit!r}")
        for option in ("state", "strict", "swap"):
            if not isinstance(getattr(self, option), bool) and (
                option != "state" or self.state is not None
            ):
                raise ShoalError(f"{option} must be True or False, not {getattr(self, option)!r}")

    @property
    def unseen(self) -> np.ndarray | None:
        """The state where nobody will look at it."""
        return np.zeros(0, np.float32) if self.state is None else None

    @staticmethod
    def split(options: dict[str, Any]) -> tuple[AdapterOptions, dict[str, Any]]:
        """The adapter's options, and the environment's."""
        ours = {option.name for option in fields(AdapterOptions)}
        return (
            AdapterOptions(**{name: value for name, value in options.items() if name in ours}),
            {name: value for name, value in options.items() if name not in ours},
        )

    def arrange(self, match: Match) -> Match:
        """The match with its limit and its exchange of seats."""
        if self.limit:
            match = Limited(match, self.limit)
        return Swapped(match) if self.swap else match


class Limited:
    """A match that is cut after so many steps."""

    def __init__(self, match: Match, limit: int):
        self.match = match
        self.limit = limit
        self.taken = 0
        self.teams = match.teams
        self.render = match.render
        self.close = match.close

    def reset(self, seed: int) -> MatchStep:
        self.taken = 0
        return self.match.reset(seed)

    def step(self, actions: dict[str, np.ndarray]) -> MatchStep:
        self.taken += 1
        moment = self.match.step(actions)
        return moment._replace(over=moment.over or self.taken >= self.limit)


class Swapped:
    """A match of two equal teams that exchange seats when the seed is odd; the state ends with a 1
    when they have."""

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
        self.render = match.render
        self.close = match.close

    def reset(self, seed: int) -> MatchStep:
        self.swapped = seed % 2 == 1
        return self._seen(self.match.reset(seed))

    def step(self, actions: dict[str, np.ndarray]) -> MatchStep:
        return self._seen(self.match.step(self._seated(actions)))

    def _seen(self, moment: MatchStep) -> MatchStep:
        state = np.append(moment.state, np.float32(self.swapped))
        return moment._replace(teams=self._seated(moment.teams), state=state)

    def _seated(self, by_team: dict[str, Any]) -> dict[str, Any]:
        if not self.swapped:
            return by_team
        return {team: by_team[other] for team, other in self.other.items()}

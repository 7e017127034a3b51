"""Small runs: a default that is too large for a run is lowered, with a message.

An option that the user gave, by a flag or a keyword, stays as it is: if it does not fit, `Config`
refuses it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from .. import algorithms
from ..types import Fit, Share, Spec
from .config import Config
from .settings import Settings

UPDATES = 10  # updates of a run that is too short for its defaults
# games and steps of a window, below which nothing is worth fitting
FEWEST = 4
SHORTEST = 5


class Given(NamedTuple):
    """The names of options that the user gave."""

    settings: Collection[str]
    teams: Mapping[str, Collection[str]]


def fitted(
    env: str,
    options: dict[str, Any],
    teams: dict[str, tuple[str, Any]],
    settings: Settings,
    given: Given,
    sides: dict[str, Spec] | None = None,
    said: tuple[str, ...] | None = None,
) -> tuple[Config, list[str]]:
    """The run, and messages for the user; `sides` are the teams and `said` the metrics of the game,
    if they are known already."""
    chosen, settings, messages = fits(teams, settings, given)
    return Config(env, options, chosen, settings, sides, said=said), messages


def refitted(config: Config, settings: Settings, given: Given) -> tuple[Config, list[str]]:
    """A saved config with other settings of the run, and messages for the user."""
    teams, settings, messages = fits(config.teams, settings, given)
    return dataclasses.replace(config, teams=teams, settings=settings), messages


def fits(
    teams: dict[str, tuple[str, Any]], settings: Settings, given: Given
) -> tuple[dict[str, tuple[str, Any]], Settings, list[str]]:
    """Every team's algorithm and the settings of the run, each fitted to the other, and messages
    about what changed."""
    messages: list[str] = []
    for suited in (_games, _window):
        settings = _taken(settings, suited(settings), given.settings, messages)
    devices = max(settings.devices, 1)
    share = Share(max(settings.games // devices, 1), settings.window, devices, settings.steps)
    chosen = {}
    for team, (name, config) in teams.items():
        own = algorithms.find(name).suited(config, share)
        chosen[team] = (name, _taken(config, own, given.teams.get(team, ()), messages))
    return chosen, settings, list(dict.fromkeys(messages))


def _taken(config: Any, fits: list[Fit], given: Collection[str], messages: list[str]) -> Any:
    """The config with what fits better, except options that the user gave."""
    fits = [fit for fit in fits if fit.option not in given]
    for option, value, to in fits:
        messages.append(f"{option} {getattr(config, option):,} does not fit {to}: using {value:,}")
    return dataclasses.replace(config, **{fit.option: fit.value for fit in fits})


def _games(s: Settings) -> list[Fit]:
    """Fewer, a power of 2, for a run of few steps; as many as devices can share."""
    devices = max(s.devices, 1)
    games = s.games
    to = f"{s.devices} devices"
    if s.steps < s.games * s.window:
        most = max(s.steps // (UPDATES * s.window), FEWEST)
        games = min(2 ** (most.bit_length() - 1), games)
        to = f"{s.steps:,} steps"
    games = max(games // devices, 1) * devices
    return [Fit("games", games, to)] if games != s.games else []


def _window(s: Settings) -> list[Fit]:
    """Shorter, for a run of few steps."""
    if s.steps >= s.games * s.window or s.window <= SHORTEST:
        return []
    return [
        Fit(
            "window",
            max(s.steps // (UPDATES * s.games), SHORTEST),
            f"{s.steps:,} steps of {s.games} games",
        )
    ]

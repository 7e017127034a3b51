"""Fit a small run: lower defaults that are too large for it, and tell the user.

An option that the user gave, by a flag or a keyword, stays: if it does not fit, `Config` refuses
it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from .. import algorithms
from ..types import Fit, Share, Spec
from .config import Config
from .settings import Settings

UPDATES = 10  # updates that a run too short for its defaults is fitted to
# fewest games, and fewest steps of a window, that a run is fitted to
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
    metric_names: tuple[str, ...] | None = None,
) -> tuple[Config, list[str]]:
    """Build the config with fitted defaults; also return messages for the user.

    `sides` are the game's teams and `metric_names` its metrics, where known."""
    chosen, settings, messages = fits(teams, settings, given)
    return Config(env, options, chosen, settings, sides, metric_names=metric_names), messages


def refitted(config: Config, settings: Settings, given: Given) -> tuple[Config, list[str]]:
    """A saved config with other settings of the run, fitted to them, and messages for the user."""
    teams, settings, messages = fits(config.teams, settings, given)
    return dataclasses.replace(config, teams=teams, settings=settings), messages


def fits(
    teams: dict[str, tuple[str, Any]], settings: Settings, given: Given
) -> tuple[dict[str, tuple[str, Any]], Settings, list[str]]:
    """Fit every team's algorithm and the run's settings to each other; also return messages."""
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
    """Apply the fits, except to options that the user gave."""
    fits = [fit for fit in fits if fit.option not in given]
    for option, value, to in fits:
        messages.append(f"{option} {getattr(config, option):,} does not fit {to}: using {value:,}")
    return dataclasses.replace(config, **{fit.option: fit.value for fit in fits})


def _games(s: Settings) -> list[Fit]:
    """Fewer games, a power of 2, for a short run; a number that the devices can share."""
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
    """A shorter window, for a short run."""
    if s.steps >= s.games * s.window or s.window <= SHORTEST:
        return []
    return [
        Fit(
            "window",
            max(s.steps // (UPDATES * s.games), SHORTEST),
            f"{s.steps:,} steps of {s.games} games",
        )
    ]

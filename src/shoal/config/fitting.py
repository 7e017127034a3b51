"""Small runs: a default that is merely too large for a run is made to fit it, and it is said.

What somebody asked for, by a flag or a keyword, stays as it is: if it does not fit, `Config`
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

UPDATES = 10  # that a run of too few steps is cut into
# games and steps of a window, below which nothing is worth fitting
FEWEST = 4
SHORTEST = 5


class Asked(NamedTuple):
    """The names of options that the user gave."""

    settings: Collection[str]
    teams: Mapping[str, Collection[str]]


def fitted(
    env: str,
    options: dict[str, Any],
    teams: dict[str, tuple[str, Any]],
    settings: Settings,
    asked: Asked,
    sides: dict[str, Spec] | None = None,
    said: tuple[str, ...] | None = None,
) -> tuple[Config, list[str]]:
    """The run, and what the user should be told of it; `sides` is who plays and `said` the game's
    metrics, where that is known already."""
    chosen, settings, told = fits(teams, settings, asked)
    return Config(env, options, chosen, settings, sides, said=said), told


def refitted(config: Config, settings: Settings, asked: Asked) -> tuple[Config, list[str]]:
    """A config that was saved with other settings of the run, and what the user should be told."""
    teams, settings, told = fits(config.teams, settings, asked)
    return dataclasses.replace(config, teams=teams, settings=settings), told


def fits(
    teams: dict[str, tuple[str, Any]], settings: Settings, asked: Asked
) -> tuple[dict[str, tuple[str, Any]], Settings, list[str]]:
    """Every team's algorithm and the settings of the run, each fitted to the other; what
    changed."""
    told: list[str] = []
    for suited in (_games, _window):
        settings = _taken(settings, suited(settings), asked.settings, told)
    devices = max(settings.devices, 1)
    share = Share(max(settings.games // devices, 1), settings.window, devices, settings.steps)
    chosen = {}
    for team, (name, config) in teams.items():
        own = algorithms.find(name).suited(config, share)
        chosen[team] = (name, _taken(config, own, asked.teams.get(team, ()), told))
    return chosen, settings, list(dict.fromkeys(told))


def _taken(config: Any, fits: list[Fit], asked: Collection[str], told: list[str]) -> Any:
    """The config with what fits better and was not asked for."""
    fits = [fit for fit in fits if fit.option not in asked]
    for option, value, to in fits:
        told.append(f"{option} {getattr(config, option):,} does not fit {to}: using {value:,}")
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

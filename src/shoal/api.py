"""The Python door: the same runs as from the command line."""

from __future__ import annotations

import dataclasses
from typing import Any

from . import algorithms, envs, presets
from .config import Config, Settings
from .devices import setup
from .player import load
from .trainer import Result
from .trainer import train as run
from .types import ShoalError, nearest

__all__ = ["load", "train"]
SETTINGS = [option.name for option in dataclasses.fields(Settings)]


def train(
    *ids: str,
    teams: dict[str, str | tuple[str, dict[str, Any]]] | None = None,
    env: dict[str, Any] | None = None,
    preset: bool = True,
    quiet: bool = False,
    **options: Any,
) -> Result:
    """`train("mappo", "mpe/simple_spread", steps=2e6, env={"N": 5}, lr=1e-3)`, or `train("mpe/simple_tag",
    teams={"adversary": "coma", "agent": ("ppo", {"lr": 1e-3})})`; options are the run's and the algorithm's."""
    setup()
    if len(ids) != (1 if teams else 2):
        raise ShoalError("give an algorithm and an environment, or an environment and teams={team: algorithm}")
    if teams:
        return run(_several(ids[0], teams, env or {}, options), quiet)
    config, tuned = _one(ids[0], ids[1], env or {}, preset, options)
    if tuned and not quiet:
        print(presets.note(config.label, config.env, "preset=False"), flush=True)
    return run(config, quiet)


def _one(
    algorithm: str, env_id: str, env: dict[str, Any], preset: bool, options: dict[str, Any]
) -> tuple[Config, bool]:
    """One algorithm for every team, and whether a preset is underneath."""
    kind = algorithms.find(algorithm)
    settings, own = _sort(options)
    known = [option.name for option in dataclasses.fields(kind.Config)]
    for name in own:
        if name not in known:
            hint = nearest(name, [*known, *SETTINGS])
            raise ShoalError(f"neither {algorithm} nor a run has an option {name!r}{hint}")
    tuned = preset and (kind.name, env_id) in presets.shipped()
    tables = presets.load(kind.name, env_id if tuned else "")
    env = tables["env"] | env
    everyone = {team: (kind.name, tables["algorithm"] | own) for team in envs.make(env_id, **env).teams}
    return Config.build(env_id, everyone, env, tables["settings"] | settings), tuned


def _several(env_id: str, teams: dict[str, Any], env: dict[str, Any], options: dict[str, Any]) -> Config:
    """An algorithm per team, each with its own options."""
    settings, own = _sort(options)
    for name in own:
        hint = nearest(name, SETTINGS) or ": an algorithm's belong in teams={team: (algorithm, options)}"
        raise ShoalError(f"a run has no option {name!r}{hint}")
    chosen = {team: (one, {}) if isinstance(one, str) else (one[0], one[1]) for team, one in teams.items()}
    return Config.build(env_id, chosen, env, settings)


def _sort(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The run's options and the others."""
    run_options = {name: value for name, value in options.items() if name in SETTINGS}
    return run_options, {name: value for name, value in options.items() if name not in SETTINGS}

"""The Python door: the same runs as from the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import algorithms
from .config import presets
from .config.config import Config, opened, parts
from .config.fields import fill
from .config.fitting import Asked, fitted
from .config.settings import Settings
from .config.trust import trusted
from .devices import setup
from .envs.metrics import declared
from .errors import ShoalError, nearest
from .monitor.callbacks import Callback
from .monitor.console import tell
from .run.trainer import resume as go_on
from .run.trainer import train as run
from .store.player import load
from .store.summary import Result
from .sweep import seeds

__all__ = ["load", "resume", "train"]
SETTINGS = [option.name for option in dataclasses.fields(Settings)]


def train(
    *ids: str,
    teams: dict[str, str | tuple[str, dict[str, Any]]] | None = None,
    env: dict[str, Any] | None = None,
    preset: bool = True,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
    **options: Any,
) -> Result:
    """`train("mappo", "mpe/simple_spread", steps=2e6, env={"N": 5}, lr=1e-3)`, or
    `train("mpe/simple_tag", teams={"adversary": "coma", "agent": ("ppo", {"lr": 1e-3})})`; options
    are the run's and the algorithm's."""
    setup()
    if len(ids) != (1 if teams else 2):
        raise ShoalError(
            "give an algorithm and an environment, or an environment and teams={team: algorithm}"
        )
    if teams:
        config, told = _several(ids[0], teams, env or {}, preset, options)
    else:
        config, told = _one(ids[0], ids[1], env or {}, preset, options)
    for sentence in () if quiet else told:
        tell(sentence)
    if config.settings.seeds > 1:
        if callbacks:
            raise ShoalError(
                "callbacks cannot follow several seeds, which have processes of their own:"
                " train one by one"
            )
        return seeds.train(config, quiet)
    return run(config, quiet, callbacks)


def resume(
    run: str | Path, quiet: bool = False, callbacks: Sequence[Callback] = (), trust: bool = False
) -> Result:
    """Go on with a run that was interrupted, from its newest checkpoint; one of an own environment
    needs `trust`."""
    setup()
    if seeds.is_group(Path(run)):
        return seeds.resume(Path(run), quiet, trusted(trust))
    return go_on(Path(run), quiet, callbacks, trusted(trust))


def _one(
    algorithm: str, env_id: str, env: dict[str, Any], preset: bool, options: dict[str, Any]
) -> tuple[Config, list[str]]:
    """One algorithm for every team, and what the user should be told."""
    kind, argument = algorithms.parse_algorithm(algorithm)
    settings, own = _sort(options)
    known = [option.name for option in dataclasses.fields(kind.Config)]
    for name in own:
        if name not in known:
            hint = nearest(name, [*known, *SETTINGS])
            raise ShoalError(f"neither {algorithm} nor a run has an option {name!r}{hint}")
    tuned = presets.sides({"": kind.name}, env_id, preset)
    env = tuned.env | env
    game = opened(env_id, env, fill(Settings, tuned.settings | settings, "a run"))
    everyone = {team: (kind.name, tuned.teams[""] | argument | own) for team in game.teams}
    asked = Asked(settings, dict.fromkeys(everyone, (*argument, *own)))
    return _made(tuned, asked, env_id, everyone, env, settings, game)


def _several(
    env_id: str, teams: dict[str, Any], env: dict[str, Any], preset: bool, options: dict[str, Any]
) -> tuple[Config, list[str]]:
    """An algorithm per team, each with its own options over its preset's, and what the user should
    be told."""
    settings, own = _sort(options)
    for name in own:
        hint = (
            nearest(name, SETTINGS)
            or ": an algorithm's belong in teams={team: (algorithm, options)}"
        )
        raise ShoalError(f"a run has no option {name!r}{hint}")
    given = {
        team: (one, {}) if isinstance(one, str) else (one[0], one[1]) for team, one in teams.items()
    }
    read = {team: algorithms.parse_algorithm(name) for team, (name, _) in given.items()}
    names = {team: kind.name for team, (kind, _) in read.items()}
    tuned = presets.sides(names, env_id, preset)
    chosen = {
        team: (names[team], tuned.teams[team] | read[team][1] | mine)
        for team, (_, mine) in given.items()
    }
    asked = Asked(settings, {team: (*read[team][1], *mine) for team, (_, mine) in given.items()})
    return _made(tuned, asked, env_id, chosen, tuned.env | env, settings)


def _made(
    tuned: presets.Sides,
    asked: Asked,
    env_id: str,
    teams: dict[str, Any],
    env: dict[str, Any],
    settings: dict,
    game: Any = None,
) -> tuple[Config, list[str]]:
    """The run, with what is merely too large fitted to it; `game` is what was opened already."""
    known = (game.teams, declared(game)) if game else (None, None)
    config, told = fitted(*parts(env_id, teams, env, tuned.settings | settings), asked, *known)
    note = presets.note(tuned.used, env_id, "preset=False")
    return config, [note, *told] if note else told


def _sort(options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The run's options and the others."""
    run_options = {name: value for name, value in options.items() if name in SETTINGS}
    return run_options, {name: value for name, value in options.items() if name not in SETTINGS}

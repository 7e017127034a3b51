"""The Python door: the same runs as from the command line."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import algorithms, envs, plugins
from .config import presets
from .config.config import Config, opened, parts
from .config.fields import fill, fit
from .config.fitting import Asked, fitted
from .config.settings import Settings
from .config.trust import of_files, trusted
from .devices import setup
from .envs.metrics import declared
from .errors import ShoalError, nearest
from .monitor.callbacks import Callback
from .monitor.console import tell
from .run.trainer import resume as go_on
from .run.trainer import train as run
from .store.player import load
from .store.summary import Result
from .sweep.seeds import is_group
from .sweep.seeds import resume as go_on_with_group
from .sweep.seeds import train as run_group

__all__ = ["load", "resume", "train"]
SETTINGS = [option.name for option in dataclasses.fields(Settings)]


def train(
    *ids: Any,
    teams: dict[str, Any] | None = None,
    env: dict[str, Any] | None = None,
    preset: bool = True,
    quiet: bool = False,
    callbacks: Sequence[Callback | type[Callback]] = (),
    trust: bool = False,
    **options: Any,
) -> Result:
    """`train("mappo", "mpe/simple_spread", steps=2e6, env={"N": 5}, lr=1e-3)`, or
    `train("mpe/simple_tag", teams={"adversary": "coma", "agent": ("ppo", {"lr": 1e-3})})`; options
    are the run's and the algorithm's. `seeds=5` or `seeds=[3, 7]` train several runs, and
    `from_run="runs/x"` starts from the weights of another.

    An algorithm or torso of one's own may be given as its class, a game as an object of it or as
    its class: `train(Mine, Chase(size=8), torso=Attention)`. `trust` lets folders that options
    lead to name code of their own."""
    setup()
    if len(ids) != (1 if teams else 2):
        raise ShoalError(
            "give an algorithm and an environment, or an environment and teams={team: algorithm}"
        )
    classes = [plugins.hold(one) for one in _listed(callbacks) if isinstance(one, type)]
    options |= {"callbacks": ",".join(classes)} if classes else {}
    objects = [one for one in _listed(callbacks) if not isinstance(one, type)]
    env_id, env = _environment(ids[-1], env or {})
    with of_files(trusted(trust)):
        if teams:
            config, told = _several(env_id, teams, env, preset, options)
        else:
            config, told = _one(_algorithm(ids[0]), env_id, env, preset, options)
    for sentence in () if quiet else told:
        tell(sentence)
    if config.settings.grouped:
        if objects:
            raise ShoalError(
                "objects cannot follow several seeds, which have processes of their own: give the"
                " classes of callbacks, or train one by one"
            )
        return run_group(config, quiet)
    return run(config, quiet, objects)


def resume(
    run: str | Path,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
    trust: bool = False,
    steps: float = 0,
    seeds: int | str | Sequence[int] = "",
) -> Result:
    """Go on with a run that was interrupted, from its newest checkpoint; one of an own environment
    needs `trust`. With `steps`, train any run for so many in all; with `seeds`, let a group have so
    many, or also those listed."""
    setup()
    path = Path(run)
    total = fit(int, steps, "steps")
    with of_files(trusted(trust)):
        if is_group(path):
            return go_on_with_group(path, quiet, trusted(trust), total, _seeds(seeds))
        if seeds:
            raise ShoalError(f"{run} is one run, and only a group has seeds: leave out seeds")
        return go_on(path, quiet, callbacks, trusted(trust), total)


def _seeds(seeds: int | str | Sequence[int]) -> str:
    """Seeds as the command line has them: how many, or which."""
    return str(seeds) if isinstance(seeds, int | str) else ",".join(map(str, [*seeds, ""]))


def _listed(callbacks: Any) -> Sequence[Any]:
    """A list of callbacks; one by itself is told of where all of them are looked at."""
    return callbacks if isinstance(callbacks, list | tuple) else [callbacks]


def _algorithm(given: Any) -> str:
    """What finds an algorithm that was given by name or as its class."""
    return given if isinstance(given, str) else algorithms.id_of(given)


def _environment(given: Any, options: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The id and the options of an environment that was given by id, as an object or as what makes
    it."""
    if isinstance(given, str):
        return given, options
    if callable(given) and hasattr(given, "__qualname__"):
        return plugins.hold(given), options
    if not dataclasses.is_dataclass(given) or isinstance(given, type):
        raise ShoalError(
            f"a {type(given).__name__} cannot be made again for several games: give the class or"
            " the function that makes it"
        )
    if envs.GAMES.get(getattr(given, "name", "")) is type(given):
        return given.name, dataclasses.asdict(given) | options  # type: ignore[attr-defined]
    return plugins.hold(type(given)), dataclasses.asdict(given) | options


def _one(
    algorithm: str, env_id: str, env: dict[str, Any], preset: bool, options: dict[str, Any]
) -> tuple[Config, list[str]]:
    """One algorithm for every team, and what the user should be told."""
    name, argument = algorithms.parse_algorithm(algorithm)
    settings, own = _sort(options)
    known = [option.name for option in dataclasses.fields(algorithms.find(name).Config)]
    for option in own:
        if option not in known:
            hint = nearest(option, [*known, *SETTINGS])
            raise ShoalError(f"neither {algorithm} nor a run has an option {option!r}{hint}")
    tuned = presets.sides({"": name}, env_id, preset)
    env = tuned.env | env
    game = opened(env_id, env, fill(Settings, tuned.settings | settings, "a run"))
    everyone = {team: (name, tuned.teams[""] | argument | own) for team in game.teams}
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
        team: (one[0], _paths(one[1])) if isinstance(one, tuple | list) else (one, {})
        for team, one in teams.items()
    }
    read = {team: algorithms.parse_algorithm(_algorithm(name)) for team, (name, _) in given.items()}
    names = {team: name for team, (name, _) in read.items()}
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
    if isinstance(options.get("seeds"), list | tuple):
        options = options | {"seeds": _seeds(options["seeds"])}
    run_options = {name: value for name, value in options.items() if name in SETTINGS}
    others = {name: value for name, value in options.items() if name not in SETTINGS}
    return run_options, _paths(others)


def _paths(options: dict[str, Any]) -> dict[str, Any]:
    """The options, with the import path of every class that was given as one."""
    return {
        name: plugins.hold(value) if isinstance(value, type) else value
        for name, value in options.items()
    }

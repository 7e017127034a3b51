"""From the words after `shoal train` to a config."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import make_dataclass
from typing import Annotated, Any

from . import algorithms, envs, presets
from .config import Config, Settings, fill
from .flags import flags, parse
from .types import ShoalError, nearest

NO_PRESET = "--no-preset"
TEAM = "--team"
BARE = "shoal train <algorithm> <env> [options], or shoal train --team <team>=<algorithm> … <env> [options]"


def assemble(args: list[str]) -> tuple[Config, str]:
    """The config that the words mean, and what the user should be told about it."""
    ids, teams, args, preset = _split(args)
    if len(ids) not in ((1, 2) if teams else (2,)):
        if "--help" in args or "-h" in args:
            _bare_help()
        if len(ids) > 2:
            raise ShoalError(f"{ids[2]!r} is one word too many after {ids[0]} and {ids[1]}: options begin with --")
        raise ShoalError(f"say what to train on what: {BARE}")
    env, default = ids[-1], ids[0] if len(ids) == 2 else None
    for name in [*teams.values(), *ids[:-1]]:
        algorithms.find(name)
    envs.make(env)
    if teams:
        return _several(env, default, teams, args, preset)
    return _one(env, str(default), args, preset)


def _one(env: str, name: str, args: list[str], preset: bool) -> tuple[Config, str]:
    """One algorithm for every team: its options have no prefix, and the pair may have a preset."""
    kind = algorithms.find(name)
    tuned = presets.sides({"": kind.name}, env, preset)
    parts = {
        "run": (Settings, fill(Settings, tuned.settings, "a run"), True),
        "algorithm": (kind.Config, fill(kind.Config, tuned.teams[""], name), True),
        "env": (envs.GAMES[env], envs.make(env, **tuned.env), False),
    }
    title = f"Train {name} on {env}. {_examples(name, env)}"
    given = _read(parts, args, f"shoal train {name} {env}", title)
    teams = {team: (kind.name, given.algorithm) for team in given.env.teams}
    config = Config(env, dataclasses.asdict(given.env), teams, given.run)
    return config, presets.note(tuned.used, env, NO_PRESET)


def _several(env: str, default: str | None, teams: dict[str, str], args: list[str], preset: bool) -> tuple[Config, str]:
    """An algorithm per team: options of a team are prefixed by its name, and each may have its preset."""
    sides = envs.make(env).teams
    for team in teams:
        if team not in sides:
            raise ShoalError(f"{env} has no team {team!r}{nearest(team, sides)}: its teams are {', '.join(sides)}")
    names = {team: teams.get(team, default) for team in sides}
    for team, name in names.items():
        if name is None:
            raise ShoalError(f"team {team!r} of {env} has no algorithm: add {TEAM} {team}=<algorithm>")
    kinds = {team: algorithms.find(str(name)) for team, name in names.items()}
    tuned = presets.sides({team: kind.name for team, kind in kinds.items()}, env, preset)
    parts = {
        "run": (Settings, fill(Settings, tuned.settings, "a run"), True),
        **{team: (kind.Config, fill(kind.Config, tuned.teams[team], kind.name), False) for team, kind in kinds.items()},
        "env": (envs.GAMES[env], envs.make(env, **tuned.env), False),
    }
    title = f"Train {', '.join(f'{team}={kind.name}' for team, kind in kinds.items())} on {env}."
    given = _read(parts, args, f"shoal train … {env}", title)
    chosen = {team: (kind.name, getattr(given, team)) for team, kind in kinds.items()}
    config = Config(env, dataclasses.asdict(given.env), chosen, given.run)
    return config, presets.note(tuned.used, env, NO_PRESET)


def _read(parts: dict[str, tuple[type, Any, bool]], args: list[str], prog: str, title: str) -> Any:
    """The parts, `name -> type, default, without prefix?`, with what the flags change."""
    import tyro

    fields = [
        (name, Annotated[kind, tyro.conf.OmitArgPrefixes] if bare else kind) for name, (kind, _, bare) in parts.items()
    ]
    together = make_dataclass("Options", fields, frozen=True)
    return parse(together, together(**{name: part for name, (_, part, _) in parts.items()}), args, prog, title)


def _split(args: list[str]) -> tuple[list[str], dict[str, str], list[str], bool]:
    """Words that stand alone, teams, everything else, and whether a preset may be used."""
    alone, rest, teams = [], [], {}
    switches = _switches()
    words = [word for word in args if word != NO_PRESET]
    while words:
        word = words.pop(0)
        if word == TEAM or word.startswith(f"{TEAM}="):
            pair = word.partition("=")[2] or (words.pop(0) if words else "")
            team, _, name = pair.partition("=")
            if not team or not name:
                raise ShoalError(f"{TEAM} needs a team and its algorithm, such as {TEAM} adversary=ppo")
            teams[team] = name
        elif word.startswith("-") and word.rpartition(".")[2].lstrip("-").replace("_", "-") not in switches:
            has_value = "=" not in word and words and not words[0].startswith("--")
            rest += [word, words.pop(0)] if has_value else [word]
        else:
            (rest if word.startswith("-") else alone).append(word)
    return alone, teams, rest, NO_PRESET not in args


def _switches() -> set[str]:
    """Flags without a value, of anything that has flags: no word after them belongs to them."""
    everything = [Settings, *envs.GAMES.values(), *(kind.Config for kind in algorithms.ALGORITHMS.values())]
    names = (name for kind in everything for name, takes_value in flags(kind, kind()) if not takes_value)
    return {"help", "h"} | {name.removeprefix("--") for name in names}


def _bare_help() -> None:
    """Without a pair to explain: the run's own options."""
    title = f"{BARE}. Name an algorithm and an environment before --help to see their options too; {_examples()}"
    parse(Settings, Settings(), ["--help"], "shoal train <algorithm> <env>", title)
    sys.exit(0)


def _examples(name: str = "mappo", env: str = "mpe/simple_spread") -> str:
    return (
        f"For example: shoal train {name} {env} --steps 2e6 --seed 1, or shoal train {name} {env} --games 64 --out tmp"
    )

"""From the words after `shoal train` to a config."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Collection
from dataclasses import field, make_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from .. import algorithms, envs
from ..envs.metrics import declared
from ..errors import ShoalError, nearest
from ..files import errors_name, read_json
from . import presets
from .config import Config, opened
from .fields import fill
from .fitting import Asked, fitted, refitted
from .flags import FLAG, flags, given, parse
from .settings import Settings
from .trust import EVERYTHING, NOTHING, Trust

NO_PRESET = "--no-preset"
TEAM = "--team"
SAVED = ".json"
PYTHONS = {"True": "true", "False": "false", "None": "null"}  # its own words for what JSON has
SELF_PLAY = "--self-play"  # or --self-play=<rule of past>
BARE = (
    "shoal train <algorithm> <env> [options], or shoal train --team <team>=<algorithm> … <env>"
    " [options]"
)


def assemble(
    args: list[str], words: Trust = EVERYTHING, files: Trust = NOTHING
) -> tuple[Config, str]:
    """The config that the words mean, and what the user should be told about it.

    `words` is how far who wrote the arguments is trusted, a user who typed them entirely; `files`
    the same of a config that they lead to."""
    rivals = [word for word in args if word.partition("=")[0] == SELF_PLAY]
    ids, teams, args, preset = _split([word for word in args if word not in rivals])
    if len(ids) == 1 and ids[0].endswith(SAVED) and not teams and not rivals:
        return _again(Path(ids[0]), args, files)
    if len(ids) == 2 and not _is_algorithm(ids[0]) and _is_algorithm(ids[1]):
        raise ShoalError(f"the algorithm comes first: shoal train {ids[1]} {ids[0]}")
    if len(ids) not in ((1, 2) if teams else (2,)):
        if "--help" in args or "-h" in args:
            _bare_help()
        if len(ids) > 2:
            raise ShoalError(
                f"{ids[2]!r} is one word too many after {ids[0]} and {ids[1]}:"
                f" options begin with --"
            )
        raise ShoalError(f"say what to train on what: {BARE}")
    env = ids[-1]
    default = ids[0] if len(ids) == 2 else None
    words.check(env, env_options(args)[0])
    names = [*teams.values(), *ids[:-1]]
    words.check_words(word for word in [*names, *args] if not _is_algorithm(word.partition(":")[0]))
    for name in names:
        algorithms.parse_algorithm(name)
    if rivals:
        teams = _past(env, default, rivals[-1].partition("=")[2], args) | teams
    if teams:
        return _several(env, default, teams, args, preset)
    return _one(env, str(default), args, preset)


def _again(path: Path, args: list[str], trust: Trust) -> tuple[Config, str]:
    """A config that was saved, but for the run's own settings that the flags change, and what is
    then too large."""
    content = read_json(path, "where a config was saved")
    with errors_name(path):
        config = Config.from_json(
            content.get("config", content) if isinstance(content, dict) else content, trust
        )
    title = (
        f"Train again what {path} says, with other settings of the run: shoal train {path} --seed 7"
    )
    settings = parse(Settings, config.settings, args, f"shoal train {path}", title)
    asked = Asked(given(Settings, config.settings, args), {})
    config, notes = refitted(config, settings, asked)
    return config, _note("", notes)


def _one(env: str, name: str, args: list[str], preset: bool) -> tuple[Config, str]:
    """One algorithm for every team: its options have no prefix, and the pair may have a preset."""
    name, own = algorithms.parse_algorithm(name)
    tuned = presets.sides({"": name}, env, preset)
    env_part, options, args = _env(env, tuned.env, args)
    parts = {
        "run": (fill(Settings, tuned.settings, "a run"), True),
        "algorithm": (fill(algorithms.find(name).Config, tuned.teams[""] | own, name), True),
        **env_part,
    }
    title = f"Train {name} on {env}. {_examples(name, env)}"
    read, _, asked = _read(parts, {}, args, f"shoal train {name} {env}", title)
    options = dataclasses.asdict(read.env) if env_part else options
    game = opened(env, options, read.run)
    teams = {team: (name, read.algorithm) for team in game.teams}
    # flags of both have no prefix
    asked = Asked(asked.settings, dict.fromkeys(teams, (*asked.settings, *own)))
    config, notes = fitted(env, options, teams, read.run, asked, game.teams, declared(game))
    return config, _note(presets.note(tuned.used, env, NO_PRESET), notes)


def _several(
    env: str, default: str | None, teams: dict[str, str], args: list[str], preset: bool
) -> tuple[Config, str]:
    """An algorithm per team: options of a team are prefixed by its name, and each may have its
    preset."""
    env_part, options, args = _env(env, {}, args)
    game = opened(env, options, _watching(args))
    sides = game.teams
    for team in teams:
        if team not in sides:
            raise ShoalError(
                f"{env} has no team {team!r}{nearest(team, sides)}: its teams are"
                f" {', '.join(sides)}"
            )
    names = {team: teams.get(team, default) for team in sides}
    for team, name in names.items():
        if name is None:
            raise ShoalError(
                f"team {team!r} of {env} has no algorithm: add {TEAM} {team}=<algorithm>"
            )
    found, own = _found(names)
    tuned = presets.sides(found, env, preset)
    env_part, options, _ = _env(env, tuned.env | options, [])
    known = not tuned.env and not env_part  # who plays may change with options
    parts = {"run": (fill(Settings, tuned.settings, "a run"), True), **env_part}
    defaults = {
        team: fill(algorithms.find(name).Config, tuned.teams[team] | own[team], name)
        for team, name in found.items()
    }
    title = f"Train {', '.join(f'{team}={name}' for team, name in found.items())} on {env}."
    read, configs, asked = _read(parts, defaults, args, f"shoal train … {env}", title)
    chosen = {team: (name, configs[team]) for team, name in found.items()}
    options = dataclasses.asdict(read.env) if env_part else options
    told = (sides, declared(game)) if known else (None, None)
    config, notes = fitted(env, options, chosen, read.run, asked, *told)
    return config, _note(presets.note(tuned.used, env, NO_PRESET), notes)


def _note(preset: str, told: list[str]) -> str:
    """What the user is told, a sentence on each line."""
    return "\n".join([preset, *told] if preset else told)


def _past(env: str, default: str | None, rule: str, args: list[str]) -> dict[str, str]:
    """Self-play: the first team learns, the other plays its past selves."""
    _, options, _ = _env(env, {}, args)
    sides = opened(env, options, _watching(args)).teams
    if default is None:
        raise ShoalError(
            f"{SELF_PLAY} needs an algorithm that learns: shoal train <algorithm> {env} {SELF_PLAY}"
        )
    if len(sides) != 2 or algorithms.why_incompatible(*sides.values()):
        told = ", ".join(f"{spec.n} {team}" for team, spec in sides.items())
        raise ShoalError(
            f"{SELF_PLAY} needs two teams that are alike, but {env} has {told}"
            " (--env.teams each makes a team of every agent of an environment on the host)"
        )
    learner, rival = sides
    return {learner: default, rival: f"past:{rule}" if rule else "past"}


def _watching(args: list[str]) -> Settings:
    """How an environment is to be opened: which other flags there are is known only when it says
    who plays."""
    given: dict[str, Any] = {}
    for word, following in pairwise([*args, ""]):
        name, equals, value = word.partition("=")
        if name in ("--patience", "--workers"):
            given[name.removeprefix("--")] = _plain(value if equals else following)
    try:
        return fill(Settings, given, "a run")
    except ShoalError:  # whoever reads the flags will say it better
        return Settings()


def evaluation(
    default: Any, args: list[str], prog: str, title: str
) -> tuple[Any, dict[str, tuple[str, dict]]]:
    """How to evaluate, and who takes a team's place: `team -> algorithm and its options`."""
    alone, teams, rest, _ = _split(args)
    found, own = _found(teams)
    defaults = {
        team: fill(algorithms.find(name).Config, own[team], name) for team, name in found.items()
    }
    read, configs, _ = _read({"how": (default, True)}, defaults, [*rest, *alone], prog, title)
    return read.how, {
        team: (name, dataclasses.asdict(configs[team])) for team, name in teams.items()
    }


def _found(names: dict[str, Any]) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """What finds each team's algorithm, and the option that its name brings along."""
    read = {team: algorithms.parse_algorithm(str(name)) for team, name in names.items()}
    return {team: name for team, (name, _) in read.items()}, {
        team: own for team, (_, own) in read.items()
    }


def _env(
    env: str, tuned: dict[str, Any], args: list[str]
) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """The environment's part of the flags, its options, and the arguments without them.

    A native game's options are known, so that tyro reads and explains them; any others go to the
    environment as they are, and it says what it thinks of them.
    """
    if envs.find(env):
        return {"env": (envs.make(env, **tuned), False)}, {}, args
    options, rest = env_options(args)
    options = tuned | options
    envs.make(env, **options)  # is there such a one?
    return {}, options, rest


def env_options(args: list[str]) -> tuple[dict[str, Any], list[str]]:
    """What stands after every `--env.option`, and the other arguments."""
    options = {}
    rest = []
    words = list(args)
    while words:
        word = words.pop(0)
        if not word.startswith("--env."):
            rest.append(word)
            continue
        name, equals, value = word.removeprefix("--env.").partition("=")
        if not equals and words and not words[0].startswith("--"):
            equals = "="
            value = words.pop(0)
        if not equals:
            name, value = name.removeprefix("no-"), "false" if name.startswith("no-") else "true"
        options[name.replace("-", "_")] = _plain(value)
    return options, rest


def _plain(value: str) -> Any:
    """`3`, `0.5`, `true` or `True`, `[1,2]` as they are meant; anything else is text."""
    try:
        return json.loads(PYTHONS.get(value, value))
    except ValueError:
        return value


def _read(
    parts: dict[str, tuple[Any, bool]],
    sides: dict[str, Any],
    args: list[str],
    prog: str,
    title: str,
) -> tuple[Any, dict[str, Any], Asked]:
    """Our parts, `name -> default, without prefix?`, and every team's config, with what the flags
    change; which did.

    Teams are called as users like: they have fields by number, and their names are only how flags
    are written.
    """
    import tyro

    numbers = {team: f"team_{number}" for number, team in enumerate(sides)}
    defaults = {name: default for name, (default, _) in parts.items()}
    fields: list[tuple] = []
    for name, (default, bare) in parts.items():
        kind = type(default)
        fields.append((name, Annotated[kind, tyro.conf.OmitArgPrefixes] if bare else kind))
    prefixes = {team: _prefix(team, sides) for team in sides}
    for team, number in numbers.items():
        kind = Annotated[type(sides[team]), tyro.conf.arg(name=prefixes[team])]
        fields.append((number, kind, field(metadata={FLAG: prefixes[team]})))
        defaults[number] = sides[team]
    together = make_dataclass("Options", fields, frozen=True)
    options = parse(together, together(**defaults), args, prog, title)
    asked = _asked(given(together, together(**defaults), args), prefixes)
    return options, {team: getattr(options, number) for team, number in numbers.items()}, asked


def _prefix(team: str, sides: Collection[str]) -> str:
    """How the flags of a team begin: --env.x is the environment's, and an equals sign would end
    them."""
    plain = team.replace("=", "-")
    taken = team == "env" or (plain != team and plain in sides)
    return f"team.{plain}" if taken else plain


def _asked(names: list[str], prefixes: dict[str, str]) -> Asked:
    """What was asked for, by whose it is."""
    owned = [name.rpartition(".")[::2] for name in names]
    teams = {
        team: [option for owner, option in owned if owner == prefix.replace("-", "_")]
        for team, prefix in prefixes.items()
    }
    return Asked([option for owner, option in owned if not owner], teams)


def _is_algorithm(word: str) -> bool:
    return word in algorithms.ALGORITHMS or word in algorithms.ALIASES


def _split(args: list[str]) -> tuple[list[str], dict[str, str], list[str], bool]:
    """Words that stand alone, teams, everything else, and whether a preset may be used."""
    alone = []
    rest = []
    teams = {}
    switches = _switches()
    words = [word for word in args if word != NO_PRESET]
    while words:
        word = words.pop(0)
        if word == TEAM or word.startswith(f"{TEAM}="):
            pair = word.partition("=")[2] or (words.pop(0) if words else "")
            team, name = _pair(pair)
            if not team or not name:
                raise ShoalError(
                    f"{TEAM} needs a team and its algorithm, such as {TEAM} adversary=ppo"
                )
            teams[team] = name
        elif word.startswith("-") and (
            _name(word) not in switches or (word.startswith("--env.") and _said(words))
        ):
            has_value = "=" not in word and words and not words[0].startswith("--")
            rest += [word, words.pop(0)] if has_value else [word]
        else:
            (rest if word.startswith("-") else alone).append(word)
    return alone, teams, rest, NO_PRESET not in args


def _pair(words: str) -> tuple[str, str]:
    """`team=algorithm` taken apart. A team's name may contain an equals sign, and so may what
    follows an algorithm's colon; an algorithm's own name may not."""
    places = [place for place, sign in enumerate(words) if sign == "="]
    for place in places:
        if "=" not in words[place + 1 :].partition(":")[0]:
            return words[:place], words[place + 1 :]
    return words, ""


def _name(flag: str) -> str:
    return flag.rpartition(".")[2].lstrip("-").replace("_", "-")


def _said(words: list[str]) -> bool:
    """Whether yes or no comes next: an environment's own option may be called as a switch of ours
    and take a value."""
    return bool(words) and words[0] in (*PYTHONS, *PYTHONS.values())


@cache
def _switches() -> set[str]:
    """Flags without a value, of anything that has flags: no word after them belongs to them."""
    everything = [
        Settings,
        *envs.GAMES.values(),
        *(kind.Config for kind in algorithms.ALGORITHMS.values()),
    ]
    names = (
        name for kind in everything for name, takes_value in flags(kind, kind()) if not takes_value
    )
    return {"help", "h"} | {name.removeprefix("--") for name in names}


def _bare_help() -> None:
    """Without a pair to explain: the run's own options."""
    title = (
        f"{BARE}. Name an algorithm and an environment before --help to see their options too."
        f" {_examples()}"
    )
    parse(Settings, Settings(), ["--help"], "shoal train <algorithm> <env>", title)
    sys.exit(0)


def _examples(name: str = "mappo", env: str = "mpe/simple_spread") -> str:
    return (
        f"For example: shoal train {name} {env} --steps 2e6 --seed 1, or shoal train {name}"
        f" {env} --games 64 --out tmp"
    )

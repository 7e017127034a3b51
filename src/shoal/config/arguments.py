"""From the arguments of `shoal train` to a request for a config."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from dataclasses import field, make_dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

from .. import algorithms, envs
from ..errors import ShoalError
from ..files import errors_name, read_json
from ..options import fill
from ..types import Spec
from .compose import ALL, OPENING, SETTINGS, Request, choose, compose
from .config import Config, opened
from .fitting import Given, refitted
from .flags import FLAG, flags, given, parse
from .presets import NO_PRESET, PRESET
from .settings import Settings
from .trust import EVERYTHING, NOTHING, Trust

T = TypeVar("T")
TEAM = "--team"
SAVED = ".json"
PYTHONS = {"True": "true", "False": "false", "None": "null"}  # Python's literals -> JSON's
SELF_PLAY = "--self-play"  # or --self-play=<rule of `past`>
BARE = (
    "shoal train <algorithm> <env> [options], or shoal train --team <team>=<algorithm> … <env>"
    " [options]"
)


def compose_arguments(
    args: list[str], words: Trust = EVERYTHING, files: Trust = NOTHING
) -> tuple[Config, list[str]]:
    """Compose the config that arguments ask for; also return messages for the user.

    `words` is the trust in the arguments themselves: full, if the user typed them.
    `files` is the trust in a config file that they name."""
    self_play = [word for word in args if word.partition("=")[0] == SELF_PLAY]
    ids, teams, args, preset = _split([word for word in args if word not in self_play])
    if len(ids) == 1 and ids[0].endswith(SAVED) and not teams and not self_play:
        return _again(Path(ids[0]), args, files)
    _check_count(ids, teams, args)
    env = ids[-1]
    algorithm = ids[0] if len(ids) == 2 else ""
    said, rest = env_options(args)
    options = said
    words.check(env, options)
    names = [*teams.values(), *ids[:-1]]
    words.check_words(word for word in [*names, *args] if not _is_algorithm(word.partition(":")[0]))
    for name in names:
        algorithms.parse_algorithm(name)
    native = envs.find(env) is not None
    if native:  # tyro knows its options, so it reads and explains them
        options = {}
        rest = args
    envs.make(env, **options)  # refuses an id that does not exist
    game: Any = None
    if teams or self_play:
        game = opened(env, options, _opening(args))
    if self_play:
        teams = _self_play(env, game.teams, algorithm, self_play[-1].partition("=")[2]) | teams
    chosen = {team: (name, {}) for team, name in teams.items()}
    request = Request(env, algorithm, chosen, {}, said, preset)
    return _with_flags(request, rest, native, game)


def _check_count(ids: list[str], teams: dict[str, str], args: list[str]) -> None:
    """Refuse words other than one algorithm and one environment."""
    if len(ids) == 2 and not _is_algorithm(ids[0]) and _is_algorithm(ids[1]):
        raise ShoalError(f"the algorithm comes first: shoal train {ids[1]} {ids[0]}")
    if len(ids) in ((1, 2) if teams else (2,)):
        return
    if "--help" in args or "-h" in args:
        _bare_help()
    if len(ids) > 2:
        raise ShoalError(
            f"{ids[2]!r} is one word too many after {ids[0]} and {ids[1]}: options begin with --"
        )
    raise ShoalError(f"say what to train on what: {BARE}")


def _again(path: Path, args: list[str], trust: Trust) -> tuple[Config, list[str]]:
    """Load a saved config, change the settings that flags set, and fit its defaults to them."""
    content = read_json(path, "where a config was saved")
    with errors_name(path):
        config = Config.from_json(
            content.get("config", content) if isinstance(content, dict) else content, trust
        )
    title = (
        f"Train again what {path} says, with other settings of the run: shoal train {path} --seed 7"
    )
    settings = parse(Settings, config.settings, args, f"shoal train {path}", title)
    return refitted(config, settings, Given(given(Settings, config.settings, args), {}))


def changed(config: Config, args: list[str], prog: str, title: str) -> Config:
    """A saved config with the options of the run and of its algorithms that flags set.

    Flags have a team's name as prefix, and none where all teams are set alike."""
    sides = list(config.teams.values())
    alike = all(one == sides[0] for one in sides)
    bare = {"run": config.settings} | ({"algorithm": sides[0][1]} if alike else {})
    prefixed = {} if alike else {team: own for team, (_, own) in config.teams.items()}
    read = _read(bare, prefixed, args, prog, title)
    run = {name: value for name, value in read.bare.items() if name in SETTINGS}
    own = {name: value for name, value in read.bare.items() if name not in SETTINGS}
    teams = {
        team: (name, replace(options, **(own if alike else read.teams[team])))
        for team, (name, options) in config.teams.items()
    }
    return replace(config, teams=teams, settings=replace(config.settings, **run))


def _with_flags(
    request: Request, args: list[str], native: bool, game: Any
) -> tuple[Config, list[str]]:
    """Add the options set by flags to the request, and compose it.

    Flags have a team's name as prefix, and none where one algorithm plays all teams."""
    env = request.env
    choice = choose(request, game.teams if game else ())
    bare = {"run": fill(Settings, choice.tuned.settings, "a run")}
    prefixed = {team: choice.config(team) for team in choice.names if request.teams}
    if request.teams:
        prog = f"shoal train … {env}"
        who = ", ".join(f"{team}={name}" for team, name in choice.names.items())
        title = f"Train {who} on {env}."
    else:
        name = choice.names[ALL]
        bare["algorithm"] = choice.config(ALL)
        prog = f"shoal train {name} {env}"
        title = f"Train {name} on {env}. {_examples(name, env)}"
    default = envs.make(env, **choice.tuned.env) if native else None
    read = _read(bare, prefixed, args, prog, title, default)
    chosen = {
        team: (request.teams.get(team, (request.algorithm,))[0], read.teams[team])
        for team in prefixed
    }
    request = replace(
        request,
        teams=chosen,
        options=read.bare,
        env_options=read.env if native else request.env_options,
    )
    return compose(request, None if native else game)


def _self_play(env: str, sides: dict[str, Spec], algorithm: str, rule: str) -> dict[str, str]:
    """Let the first team learn and the other team play past copies of it."""
    if not algorithm:
        raise ShoalError(
            f"{SELF_PLAY} needs an algorithm that learns: shoal train <algorithm> {env} {SELF_PLAY}"
        )
    if len(sides) != 2 or algorithms.why_incompatible(*sides.values()):
        there = ", ".join(f"{spec.n} {team}" for team, spec in sides.items())
        raise ShoalError(
            f"{SELF_PLAY} needs two teams that are alike, but {env} has {there}"
            " (--env.teams each makes a team of every agent of an environment on the host)"
        )
    learner, rival = sides
    return {learner: algorithm, rival: f"past:{rule}" if rule else "past"}


def _opening(args: list[str]) -> Settings:
    """Settings to open the environment with, read before the other flags.

    Flags of teams can be read only once the environment is open and its teams are known."""
    given: dict[str, Any] = {}
    for word, following in pairwise([*args, ""]):
        name, equals, value = word.partition("=")
        if name.removeprefix("--") in OPENING:
            given[name.removeprefix("--")] = _plain(value if equals else following)
    try:
        return fill(Settings, given, "a run")
    except ShoalError:  # reported later, by the full parser
        return Settings()


def evaluation(
    default: T, args: list[str], prog: str, title: str
) -> tuple[T, dict[str, tuple[str, dict[str, Any]]]]:
    """`default` with the values that flags set, and the substitutes: team -> algorithm, options."""
    positional, teams, rest, _ = _split(args)
    found = {team: algorithms.parse_algorithm(name) for team, name in teams.items()}
    defaults = {
        team: fill(algorithms.find(name).Config, argument, name)
        for team, (name, argument) in found.items()
    }
    read = _read({"options": default}, defaults, [*rest, *positional], prog, title)
    others = {team: (teams[team], found[team][1] | read.teams[team]) for team in teams}
    return replace(default, **read.bare), others  # type: ignore[type-var]


def env_options(args: list[str]) -> tuple[dict[str, Any], list[str]]:
    """The options after `--env.`, and the other arguments.

    The options are passed to the environment unchecked: it reports those it does not accept."""
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
            value = "false" if name.startswith("no-") else "true"
            name = name.removeprefix("no-")
        options[name.replace("-", "_")] = _plain(value)
    return options, rest


def _plain(value: str) -> Any:
    """Parse `3`, `0.5`, `true`, `True` or `[1,2]` as a value; anything else is text."""
    try:
        return json.loads(PYTHONS.get(value, value))
    except ValueError:
        return value


class Flags(NamedTuple):
    """The options that flags set, by name."""

    bare: dict[str, Any]  # without a prefix
    teams: dict[str, dict[str, Any]]
    env: dict[str, Any]


def _read(
    bare: dict[str, Any],
    teams: dict[str, Any],
    args: list[str],
    prog: str,
    title: str,
    env: Any = None,
) -> Flags:
    """Read flags for dataclasses, which hold the defaults.

    Flags of `bare` have no prefix, those of teams the team's name, those of a native game `env`.
    A team may have any name, so its field is numbered; only its flags contain the name.
    """
    import tyro

    numbers = {team: f"team_{number}" for number, team in enumerate(teams)}
    prefixes = {team: _prefix(team, teams) for team in teams}
    defaults = dict(bare)
    fields: list[tuple] = [
        (name, Annotated[type(default), tyro.conf.OmitArgPrefixes])
        for name, default in bare.items()
    ]
    if env is not None:
        fields.append(("env", type(env)))
        defaults["env"] = env
    for team, number in numbers.items():
        kind = Annotated[type(teams[team]), tyro.conf.arg(name=prefixes[team])]
        fields.append((number, kind, field(metadata={FLAG: prefixes[team]})))
        defaults[number] = teams[team]
    kind = make_dataclass("Options", fields, frozen=True)
    read = parse(kind, kind(**defaults), args, prog, title)
    names = given(kind, kind(**defaults), args)
    return Flags(
        {k: v for part in bare for k, v in _set(names, "", getattr(read, part)).items()},
        {
            team: _set(names, prefixes[team], getattr(read, number))
            for team, number in numbers.items()
        },
        _set(names, "env", getattr(read, "env", None)),
    )


def _set(names: list[str], prefix: str, read: Any) -> dict[str, Any]:
    """The values in `read` that flags with this prefix set; `names` are all options set by
    flags."""
    owned = [name.rpartition(".")[::2] for name in names]
    mine = [name for owner, name in owned if owner == prefix.replace("-", "_")]
    return {name: getattr(read, name) for name in mine if hasattr(read, name)}


def _prefix(team: str, sides: Collection[str]) -> str:
    """The prefix of a team's flags: its name, changed if it is `env` or contains `=`."""
    plain = team.replace("=", "-")
    taken = team == "env" or (plain != team and plain in sides)
    return f"team.{plain}" if taken else plain


def _is_algorithm(word: str) -> bool:
    return word in algorithms.ALGORITHMS or word in algorithms.ALIASES


def _split(args: list[str]) -> tuple[list[str], dict[str, str], list[str], bool | str]:
    """Split into positional words, teams, all other arguments, and whether a preset may be used,
    or its file."""
    positional = []
    rest = []
    teams = {}
    switches = _switches()
    words = [word for word in args if word != NO_PRESET]
    preset: bool | str = NO_PRESET not in args
    while words:
        word = words.pop(0)
        if word == PRESET or word.startswith(f"{PRESET}="):
            preset = word.partition("=")[2] or (words.pop(0) if words else "")
            if not preset or preset.startswith("--"):
                raise ShoalError(f"{PRESET} needs a file, such as {PRESET} best.toml")
            continue
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
            (rest if word.startswith("-") else positional).append(word)
    return positional, teams, rest, preset


def _pair(words: str) -> tuple[str, str]:
    """Split `team=algorithm`.

    A team's name and an import path after a colon may contain `=`; an algorithm's name may not."""
    places = [place for place, sign in enumerate(words) if sign == "="]
    for place in places:
        if "=" not in words[place + 1 :].partition(":")[0]:
            return words[:place], words[place + 1 :]
    return words, ""


def _name(flag: str) -> str:
    return flag.rpartition(".")[2].lstrip("-").replace("_", "-")


def _said(words: list[str]) -> bool:
    """Whether the next word is a boolean.

    An environment's option that takes a value may have the name of one of our switches."""
    return bool(words) and words[0] in (*PYTHONS, *PYTHONS.values())


@cache
def _switches() -> set[str]:
    """All flags that take no value, of runs, algorithms and games: the next word is not theirs."""
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
    """Print the run's own options: help without an algorithm and an environment."""
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

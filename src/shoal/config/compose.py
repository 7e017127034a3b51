"""Compose a user's request into a config: one way for the command line and for Python."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .. import algorithms
from ..envs.metrics import declared
from ..errors import ShoalError, did_you_mean
from ..options import fill
from . import presets
from .config import Config, check_teams, opened, parts
from .fitting import Given, fitted
from .settings import Settings

ALL = ""  # stands for every team, in place of a name
SETTINGS = [option.name for option in dataclasses.fields(Settings)]
OPENING = ("patience", "workers")  # settings that decide how an environment is opened


@dataclass(frozen=True)
class Request:
    """What a user asked for. `options` are only those given: presets and defaults fill in the
    rest."""

    env: str
    algorithm: str = ""  # of every team that `teams` does not name
    # team -> its algorithm and that algorithm's options
    teams: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    # of the run, and also of the algorithm if `teams` is empty
    options: dict[str, Any] = field(default_factory=dict)
    env_options: dict[str, Any] = field(default_factory=dict)
    preset: bool | str = True  # a text is a file with one


class Choice(NamedTuple):
    """Every team's algorithm and preset; one algorithm for all teams is stored under `ALL`."""

    names: dict[str, str]
    arguments: dict[str, dict[str, Any]]  # the `latest` of past:latest, as an option
    tuned: presets.Sides

    def options(self, team: str) -> dict[str, Any]:
        """Options from the preset and from the algorithm's word."""
        return self.tuned.teams[team] | self.arguments[team]

    def config(self, team: str) -> Any:
        """The config of a team's algorithm before the user's own options."""
        name = self.names[team]
        return fill(algorithms.find(name).Config, self.options(team), name)


def compose(request: Request, game: Any = None) -> tuple[Config, list[str]]:
    """Compose a config; also return messages for the user.

    `game` is the environment of `request`, if it is open already."""
    if request.teams and game is None:
        opening = {name: request.options[name] for name in OPENING if name in request.options}
        game = opened(request.env, request.env_options, fill(Settings, opening, "a run"))
    choice = choose(request, game.teams if game else ())
    tuned = choice.tuned
    run, own = _sorted(request, choice)
    settings = tuned.settings | run
    options = tuned.env | request.env_options
    if game is None or tuned.env:
        game = opened(request.env, options, fill(Settings, settings, "a run"))
    given = {team: request.teams.get(team, ("", own))[1] for team in game.teams}
    teams = {}
    names = {}
    for team, mine in given.items():
        key = team if request.teams else ALL
        teams[team] = (choice.names[key], choice.options(key) | mine)
        names[team] = (*choice.arguments[key], *mine)
    made = parts(request.env, teams, options, settings)
    config, messages = fitted(*made, Given(run, names), game.teams, declared(game))
    note = presets.note(tuned.used, request.env, request.preset)
    return config, [note, *messages] if note else messages


def choose(request: Request, sides: Collection[str]) -> Choice:
    """Find the algorithms that a request names. `sides` are the game's teams, needed if it names
    any."""
    words = {ALL: request.algorithm}
    if request.teams:
        chosen = {team: word for team, (word, _) in request.teams.items()}
        rest = dict.fromkeys(sides, request.algorithm) if request.algorithm else {}
        check_teams(request.env, sides, rest | chosen)
        words = {team: chosen.get(team, request.algorithm) for team in sides}
    read = {team: algorithms.parse_algorithm(word) for team, word in words.items()}
    names = {team: name for team, (name, _) in read.items()}
    arguments = {team: argument for team, (_, argument) in read.items()}
    if ALL in names:
        _refuse_alone(names[ALL], request.algorithm)
    tuned = presets.sides(names, request.env, request.preset, request.env_options)
    return Choice(names, arguments, tuned)


def _refuse_alone(name: str, word: str) -> None:
    """Refuse to let all teams play an algorithm whose options share names with the run's
    settings."""
    own = [option.name for option in dataclasses.fields(algorithms.find(name).Config)]
    if set(own) & set(SETTINGS):
        raise ShoalError(
            f"{name} plays one team against others that learn: name it, as in"
            f" --team <team>={word} --team <other>=ppo"
        )


def _sorted(request: Request, choice: Choice) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split the options into the run's and the algorithm's; refuse unknown ones."""
    run = {name: value for name, value in request.options.items() if name in SETTINGS}
    own = {name: value for name, value in request.options.items() if name not in SETTINGS}
    known: list[str] = []
    owner = "a run has no option"
    otherwise = ": an algorithm's belong in teams={team: (algorithm, options)}"
    if not request.teams:
        name = choice.names[ALL]
        known = [option.name for option in dataclasses.fields(algorithms.find(name).Config)]
        owner = f"neither {name} nor a run has an option"
        otherwise = ""
    for option in own:
        if option not in known:
            hint = did_you_mean(option, [*known, *SETTINGS]) or otherwise
            raise ShoalError(f"{owner} {option!r}{hint}")
    return run, own

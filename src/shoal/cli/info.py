"""The pages of `shoal info`, and the tables of `shoal list`."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import itertools
import sys
import textwrap
from typing import Any, Literal, get_args, get_origin, get_type_hints

from .. import plugins
from ..algorithms import ALGORITHMS, ALIASES, Algorithm
from ..algorithms import find as algorithm
from ..config import presets
from ..config.settings import Settings
from ..envs import GAMES, find, make
from ..envs.adapters.options import AdapterOptions
from ..envs.host.match import Hosted
from ..envs.metrics import declared
from ..envs.native.grid import GridGame
from ..errors import ShoalError, did_you_mean
from ..nets.curiosity import CURIOSITIES
from ..nets.torsos import TORSOS
from ..source import derives
from ..types import Discrete, MultiDiscrete, Spec
from .words import Trusting

OUTSIDE = [
    ("pz:<module>", "any PettingZoo environment, such as pz:mpe2.simple_tag_v3"),
    (
        "gym:<id>",
        "any Gymnasium environment, such as gym:CartPole-v1 or"
        " gym:lbforaging:Foraging-8x8-2p-3f-v3",
    ),
    (
        "<module>:<function>",
        "one's own: a function that makes a PettingZoo, Gymnasium or SMAC environment",
    ),
    ("football:<scenario>", "Google Research Football"),
    (
        "jaxmarl:<name>",
        "a JaxMARL environment, in the compiled program; gymnax: and jumanji: likewise",
    ),
]
CENTRAL = (
    "Execution is central: whoever acts must know what all agents of the team observe, so that no"
    " agent can play by itself."
)


def info(args: list[str], trust: Trusting) -> int:
    """`shoal info`."""
    if args in (["--help"], ["-h"]):
        print(
            "shoal info <algorithm or env>: what one of them is, and its options, such as"
            " shoal info mappo."
        )
        return 0
    if len(args) != 1:
        raise ShoalError("say one algorithm or environment: shoal info <name>")
    print(about(args[0]))
    return 0


def overview() -> str:
    """Every algorithm and environment of ours, one line each: what `catalogue.txt` must hold."""
    algorithms = [
        (_names(kind), _doc(sys.modules[kind.__module__])) for kind in ALGORITHMS.values()
    ]
    games = [(_id(game), _sides(make(name).teams), _doc(game)) for name, game in GAMES.items()]
    return "\n".join(
        [
            "Algorithms",
            *_table(algorithms),
            "",
            "Environments",
            *_table(games),
            "",
            "Environments from outside",
            *_table(OUTSIDE),
            "",
        ]
    )


def plugged() -> list[str]:
    """A line on every plugin of installed packages."""
    return _table([row for kind in plugins.GROUPS for row in _plugged(kind)])


def _plugged(kind: str) -> list[tuple[str, str, str]]:
    """Plugins of a kind: name, kind, and description or why it cannot be used."""
    ours = {
        "algorithm": [*ALGORITHMS, *ALIASES],
        "game": GAMES,
        "torso": TORSOS,
        "curiosity": CURIOSITIES,
    }.get(kind, ())
    rows = []
    for name in plugins.entries(kind):
        try:
            about = _doc(plugins.load(plugins.path_of(kind, name)))
        except ShoalError as error:
            about = f"cannot be used: {error}"
        rows.append((name, kind, "hidden by ours of that name" if name in ours else about))
    return rows


def about(name: str) -> str:
    """The page on one algorithm or environment."""
    if derives(name, ("shoal.algorithms.",)):
        return _about_algorithm(name)
    if find(name) or ":" in name:
        return _about_game(name)
    known = [*ALGORITHMS, *ALIASES, *plugins.entries("algorithm")]
    if name not in known:
        hint = did_you_mean(name, [*known, *GAMES, *plugins.entries("game")])
        raise ShoalError(
            f"there is no algorithm or environment {name!r}{hint}: `shoal list` shows all"
        )
    return _about_algorithm(name)


def _about_algorithm(name: str) -> str:
    kind = algorithm(name)
    tuned = [env for algorithm, env in presets.shipped() if algorithm == kind.name]
    actions = " and ".join(_kind_of(space) for space in kind.spaces)
    return "\n".join(
        [
            f"{_names(kind)}: {_doc(sys.modules[kind.__module__])}",
            _doc(kind),
            f"Plays {actions} actions. Presets: {', '.join(tuned) or 'none'}.",
            *([CENTRAL] if kind.central_execution else []),
            "",
            f"Options (shoal train {name} <env> --option value)",
            *_table(options(kind.Config)),
            "",
            "Options of every run",
            *_table(options(Settings)),
        ]
    )


def _about_game(name: str) -> str:
    game = make(name)
    if not find(name):
        kind = "on the host" if isinstance(game, Hosted) else "in the compiled program"
        own = _table(options(AdapterOptions, "env.")) if isinstance(game, Hosted) else []
        about = ["Any other --env.option goes to the environment itself.", *own]
        return "\n".join(
            [
                f"{name}: an environment from outside, played {kind}",
                "",
                *sides(game.teams),
                *_metrics(game),
                "",
                *about,
            ]
        )
    lines = [f"{name}: {_doc(sys.modules[type(game).__module__])}", _doc(type(game))]
    if isinstance(game, GridGame):
        lines.append(f"Ids say options: {game.name}/{game.form}.")
    lines.append("")
    steps = f"At most {game.limit} steps per episode."
    choices = _table(options(type(game), "env.", game))
    lines += [*sides(game.teams), *_metrics(game), steps]
    return "\n".join([*lines, "", "Options (--env.option value)", *choices])


def _metrics(game: Any) -> list[str]:
    """A line on the game's own metrics, if it has any."""
    names = declared(game)
    return [f"Metrics of an episode: {', '.join(names)}."] if names else []


def sides(teams: dict[str, Spec]) -> list[str]:
    """A line per team: what its agents observe and do."""
    return [
        line
        for team, spec in teams.items()
        for line in (f"Team {team}: state {spec.state} numbers", *_table(_agents(spec)))
    ]


def options(cls: type, prefix: str = "", given: Any = None) -> list[tuple[str, str, str]]:
    """Flag, default (or value in `given`) and meaning of every field of a dataclass."""
    words = meanings(cls)
    hints = get_type_hints(cls)
    rows = []
    for field in dataclasses.fields(cls):
        choice = (
            f" One of {', '.join(get_args(hints[field.name]))}."
            if get_origin(hints[field.name]) is Literal
            else ""
        )
        default = field.default if given is None else getattr(given, field.name)
        default = repr(default) if default == "" else str(default)
        rows.append(
            (
                f"--{prefix}{field.name.replace('_', '-')}",
                default,
                words.get(field.name, "") + choice,
            )
        )
    return rows


def meanings(cls: type) -> dict[str, str]:
    """The string below each field of a dataclass and its bases."""
    words: dict[str, str] = {}
    for base in reversed(cls.__mro__[:-1]):
        if not dataclasses.is_dataclass(base):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body  # type: ignore[attr-defined]
        for field, line in itertools.pairwise(body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(line, ast.Expr)
                and isinstance(line.value, ast.Constant)
            ):
                words[field.target.id] = " ".join(str(line.value.value).split())  # type: ignore[union-attr]
    return words


def _id(game: type) -> str:
    """A game's id as `shoal list` shows it: with an example if ids contain options."""
    return f"{game.name}/{game.example}" if issubclass(game, GridGame) else game.name


def _names(kind: type[Algorithm]) -> str:
    return ", ".join([kind.name, *(alias for alias, name in ALIASES.items() if name == kind.name)])


def _sides(teams: dict[str, Spec]) -> str:
    return ", ".join(f"{spec.n} {team}" for team, spec in teams.items())


def _agents(spec: Spec) -> list[tuple[str, str, str]]:
    obs = spec.obs_sizes or (spec.obs,) * spec.n
    sizes = spec.action_sizes or (spec.action.size,) * spec.n
    kind = "actions" if isinstance(spec.action, Discrete) else "numbers as action"
    if isinstance(spec.action, MultiDiscrete):
        kind = f"values of {len(spec.action.parts)} parts of an action"
    return [
        (a, f"sees {o} numbers", f"{n} {kind}")
        for a, o, n in zip(spec.agents, obs, sizes, strict=True)
    ]


def _kind_of(space: type) -> str:
    return {Discrete: "discrete", MultiDiscrete: "multi-discrete"}.get(space, "continuous")


def _doc(thing: Any) -> str:
    """The first paragraph of a docstring, on one line."""
    return " ".join((thing.__doc__ or "").strip().split("\n\n")[0].split())


def _table(rows: list[tuple[str, ...]]) -> list[str]:
    """Columns side by side, each as wide as its widest cell."""
    if not rows:
        return ["  none"]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]) - 1)]
    return [
        "  " + "  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]])
        for row in rows
    ]

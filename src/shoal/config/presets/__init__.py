"""Tuned settings by algorithm and environment: only values that differ from the defaults, with the
command and the score.

Ours are in this folder. A preset is of an environment's id, or, where ids contain sizes, of all
that have none of their own (`lbf` for `lbf/8x8-2p-2f`); each `[[where]]` in it holds what to change
where the environment has the `options` that it names, by its id or beside it. A plugin brings its
own in a `.toml` beside its module: a table named after its class, then after its partner:
`[Mine."mpe/simple_spread".algorithm]` for an algorithm, `[Chase.ppo.settings]` for a game.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ... import algorithms, envs, files
from ...errors import ShoalError
from ..trust import OF_FILES

FOLDER = Path(__file__).parent
NO_PRESET = "--no-preset"
PRESET = "--preset"  # with a file
TABLES = ("settings", "algorithm", "env")
WHERE = "where"


def path(algorithm: str, env: str) -> Path:
    """Path of the preset of this pair, whether it exists or not."""
    return FOLDER / algorithm / f"{env.replace('/', '__').replace(':', '..')}.toml"


def load(
    algorithm: str, env: str, options: Mapping[str, Any] | None = None
) -> dict[str, dict[str, Any]]:
    """The preset's tables for an environment with these options, empty if this pair has none."""
    known = shipped()
    if (algorithm, env) in known:
        tables = _read(path(algorithm, env))
    elif (algorithm, any_size := env.partition("/")[0]) in known:
        tables = _read(path(algorithm, any_size))
    else:
        tables = {}
        if algorithm and env:
            tables = _beside(_algorithm(algorithm), env) or _beside(_game(env), algorithm)
    found = envs.ours(env) if WHERE in tables else None
    in_id = found[1] if found else {}
    return _fitting(tables, in_id | dict(options or {}))


def _fitting(tables: dict[str, Any], options: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The tables, changed by every `where` whose options are all among these."""
    found = {table: dict(tables.get(table, {})) for table in TABLES}
    for where in tables.get(WHERE, []):
        if all(options.get(name) == value for name, value in where.get("options", {}).items()):
            found = {table: own | where.get(table, {}) for table, own in found.items()}
    return found


def wheres(algorithm: str, env: str) -> list[dict[str, Any]]:
    """Every `where` in a preset of ours."""
    return _read(path(algorithm, env)).get(WHERE, [])


def _algorithm(name: str) -> type | None:
    """The class of an external algorithm, else None."""
    return None if name in algorithms.ALGORITHMS else algorithms.find(name)


def _game(env: str) -> type | None:
    """The class of an external compiled game, else None."""
    found = None if envs.ours(env) else envs.find(env)
    return found[0] if found else None


def _beside(plugin: type | None, other: str) -> dict[str, Any]:
    """A plugin's preset for its partner, from the file beside the plugin's module."""
    if plugin is None:
        return {}
    source = getattr(sys.modules.get(plugin.__module__), "__file__", None)
    file = Path(source).with_suffix(".toml") if source else None
    tables = _read(file) if file and file.exists() else {}
    for name in (plugin.__name__, other):
        tables = tables.get(name, {})
        if not isinstance(tables, dict):
            raise ShoalError(f"{file} must have a table {name!r}, not {tables!r}")
    return tables


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ShoalError(f"{file} cannot be read as a preset: {error}") from None


def shipped() -> list[tuple[str, str]]:
    """Every pair of algorithm and environment that has a preset of ours."""
    files = FOLDER.glob("*/*.toml")
    return sorted(
        (file.parent.name, file.stem.replace("__", "/").replace("..", ":")) for file in files
    )


class Sides(NamedTuple):
    """Presets of a run in which each team has its own algorithm."""

    settings: dict[str, Any]  # from the first team that has a preset
    env: dict[str, Any]
    teams: dict[str, dict[str, Any]]
    used: tuple[str, ...]  # algorithms whose presets are used


def sides(
    names: dict[str, str],
    env: str,
    wanted: bool | str = True,
    options: Mapping[str, Any] | None = None,
) -> Sides:
    """The presets of every team's algorithm on `env`, or a file's; empty unless wanted."""
    if isinstance(wanted, str):
        return _of_file(Path(wanted), names, env)
    tables = {team: load(name, env if wanted else "", options) for team, name in names.items()}
    used = tuple(dict.fromkeys(n for t, n in names.items() if any(tables[t].values())))
    first = next((tables[team] for team, name in names.items() if name in used), load("", ""))
    return Sides(
        first["settings"],
        first["env"],
        {team: own["algorithm"] for team, own in tables.items()},
        used,
    )


def _of_file(file: Path, names: dict[str, str], env: str) -> Sides:
    """The preset in a file, for the one algorithm that plays; the file may be a stranger's."""
    if len(set(names.values())) > 1:
        raise ShoalError(
            f"{file} is the preset of one algorithm, and there are {', '.join(names.values())}:"
            " give the settings of each team as options"
        )
    content = files.read_toml(file)
    for name, table in content.items():
        if name not in TABLES or not isinstance(table, dict):
            raise ShoalError(f"{file} is no preset: it has {name!r}, not {', '.join(TABLES)}")
    tables = {table: content.get(table, {}) for table in TABLES}
    trust = OF_FILES.get()
    named = {"teams": {file.stem: {"options": tables["algorithm"]}}, "settings": tables["settings"]}
    trust.check_parts(named)
    trust.check_place(named)
    trust.check_options(env, tables["env"])
    own = {team: tables["algorithm"] for team in names}
    return Sides(tables["settings"], tables["env"], own, (str(file),))


def note(used: tuple[str, ...], env: str, wanted: bool | str = True) -> str:
    """Tell the user which presets are used, and how to switch them off."""
    if isinstance(wanted, str):
        return f"using the preset in {wanted}"
    if not used:
        return ""
    return (
        f"using the preset of {' and of '.join(used)} on {env}: {NO_PRESET} (in Python"
        f" preset=False) trains with plain defaults"
    )

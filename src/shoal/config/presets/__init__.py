"""Tuned settings by algorithm and environment: only what differs from the defaults, with the
command and the score."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent
TABLES = ("settings", "algorithm", "env")


def path(algorithm: str, env: str) -> Path:
    """Where the preset of this pair is, if there is one."""
    return FOLDER / algorithm / f"{env.replace('/', '__').replace(':', '..')}.toml"


def load(algorithm: str, env: str) -> dict[str, dict[str, Any]]:
    """The preset's tables, empty if this pair has none."""
    tables = (
        tomllib.loads(path(algorithm, env).read_text("utf-8"))
        if (algorithm, env) in shipped()
        else {}
    )
    return {table: tables.get(table, {}) for table in TABLES}


def shipped() -> list[tuple[str, str]]:
    """Every pair of algorithm and environment that has one."""
    files = FOLDER.glob("*/*.toml")
    return sorted(
        (file.parent.name, file.stem.replace("__", "/").replace("..", ":")) for file in files
    )


class Sides(NamedTuple):
    """What presets say of a run in which each team has its algorithm."""

    settings: dict[str, Any]  # those of the first team that has a preset
    env: dict[str, Any]
    teams: dict[str, dict[str, Any]]
    used: tuple[str, ...]  # algorithms whose presets these are


def sides(algorithms: dict[str, str], env: str, wanted: bool = True) -> Sides:
    """The presets of every team's algorithm on `env`; none at all unless wanted."""
    tables = {team: load(name, env if wanted else "") for team, name in algorithms.items()}
    used = tuple(
        dict.fromkeys(name for name in algorithms.values() if wanted and (name, env) in shipped())
    )
    first = next((tables[team] for team, name in algorithms.items() if name in used), load("", ""))
    return Sides(
        first["settings"],
        first["env"],
        {team: own["algorithm"] for team, own in tables.items()},
        used,
    )


def note(used: tuple[str, ...], env: str, without: str) -> str:
    """What the user is told when presets are used; `without` is how not to."""
    if not used:
        return ""
    return (
        f"using the preset of {' and of '.join(used)} on {env}, {without} trains with plain"
        f" defaults"
    )

"""Tuned settings by algorithm and environment: only what differs from the defaults, with the command and the score."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
TABLES = ("settings", "algorithm", "env")


def path(algorithm: str, env: str) -> Path:
    """Where the preset of this pair is, if there is one."""
    return FOLDER / algorithm / f"{env.replace('/', '__')}.toml"


def load(algorithm: str, env: str) -> dict[str, dict[str, Any]]:
    """The preset's tables, empty if this pair has none."""
    tables = tomllib.loads(path(algorithm, env).read_text()) if (algorithm, env) in shipped() else {}
    return {table: tables.get(table, {}) for table in TABLES}


def shipped() -> list[tuple[str, str]]:
    """Every pair of algorithm and environment that has one."""
    return sorted((file.parent.name, file.stem.replace("__", "/")) for file in FOLDER.glob("*/*.toml"))


def note(algorithm: str, env: str, without: str) -> str:
    """What the user is told when a preset is used; `without` is how not to."""
    return f"using the preset of {algorithm} on {env}, {without} trains with plain defaults"

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


def load(algorithm: str, env: str) -> dict[str, dict[str, Any]] | None:
    """The preset's tables; None if this pair has no preset."""
    file = path(algorithm, env)
    if not file.is_file():
        return None
    tables = tomllib.loads(file.read_text())
    return {table: tables.get(table, {}) for table in TABLES}


def shipped() -> list[tuple[str, str]]:
    """Every pair of algorithm and environment that has one."""
    return sorted((file.parent.name, file.stem.replace("__", "/")) for file in FOLDER.glob("*/*.toml"))

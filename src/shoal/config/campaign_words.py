"""What a user writes to ask for a campaign: lists with commas, or a TOML file."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .. import files
from ..errors import ShoalError, did_you_mean

TABLES = ("algorithms", "envs", "seeds", "out", "options", "scales")  # of a TOML file


def listed(words: str) -> dict[str, list[str]]:
    """Parse `mappo,qmix --hidden 64`: label -> arguments."""
    entries = [" ".join(entry.split()) for entry in words.split(",")]
    if not all(entries):
        raise ShoalError(f"{words!r} has an empty place: separate names by single commas")
    if len(set(entries)) < len(entries):
        raise ShoalError(
            f"{words!r} says something twice: each algorithm and environment is asked for once"
        )
    return {entry: split(entry) for entry in entries}


def split(words: str) -> list[str]:
    """Split words as a shell would."""
    try:
        return shlex.split(words)
    except ValueError as error:
        raise ShoalError(
            f"{words!r} cannot be read ({str(error).lower()}): quote it as in a shell"
        ) from None


def read_toml(path: Path) -> dict[str, Any]:
    """Read a campaign's TOML file; labels become arguments."""
    content = files.read_toml(path)
    for name in content:
        if name not in TABLES:
            raise ShoalError(
                f"{path} has {name!r}{did_you_mean(name, TABLES)}: a campaign has"
                f" {', '.join(TABLES)}"
            )
    for name in ("algorithms", "envs"):
        content[name] = _entries(content.get(name), path, name)
    options = content.get("options", {})
    if not isinstance(options, dict):
        raise ShoalError(
            f"options in {path} must be a table, such as [options] and steps = 2e6 below it"
        )
    content["options"] = [word for name, value in options.items() for word in _flag(name, value)]
    _check_scales(content.get("scales", {}), path)
    return content


def _entries(given: Any, path: Path, name: str) -> dict[str, list[str]]:
    entries = (
        {entry: entry for entry in given}
        if _are_texts(given) and isinstance(given, list)
        else given
    )
    if not entries or not isinstance(entries, dict) or not _are_texts(entries.values()):
        raise ShoalError(
            f"{name} in {path} must be a list of names or a table: label = 'words after shoal"
            " train'"
        )
    found = {label: split(words) for label, words in entries.items()}
    for words in found.values():
        if {"-h", "--help"} & set(words):
            raise ShoalError(f"{name} in {path} must name what to train: leave out --help")
    return found


def _are_texts(values: Any) -> bool:
    return isinstance(values, Iterable) and all(isinstance(value, str) for value in values)


def _check_scales(scales: Any, path: Path) -> None:
    for task, bounds in scales.items() if isinstance(scales, dict) else [("", None)]:
        numbers = (
            bounds
            if isinstance(bounds, list) and all(type(b) in (int, float) for b in bounds)
            else []
        )
        if len(numbers) != 2 or numbers[0] >= numbers[1]:
            raise ShoalError(
                f"scales in {path} must say which scores are 0 and 1, such as"
                f" {task or 'env'!r} = [-30, -5]"
            )


def _flag(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", str(value)]

"""Helpers of all commands: whose code they may run, and the first word."""

from __future__ import annotations

from typing import NamedTuple

from ..config.trust import Trust
from ..errors import ShoalError


class Trusting(NamedTuple):
    """Whose code a command may run."""

    words: Trust  # for names in the command itself
    files: Trust  # for names in files and folders that it leads to


def first(args: list[str], otherwise: str) -> tuple[str, list[str]]:
    """Split off the first word, which must be there except for help."""
    if args and not args[0].startswith("-"):
        return args[0], args[1:]
    if asks_for_help(args):
        return "", args
    raise ShoalError(otherwise)


def leading(args: list[str]) -> tuple[list[str], list[str]]:
    """Split off the words before the first option."""
    count = next((i for i, word in enumerate(args) if word.startswith("-")), len(args))
    return args[:count], args[count:]


def asks_for_help(args: list[str]) -> bool:
    return "--help" in args or "-h" in args

"""What the commands share: whose code they may run, and the word that comes first."""

from __future__ import annotations

from typing import NamedTuple

from ..config.trust import Trust
from ..errors import ShoalError


class Trusting(NamedTuple):
    """Whose code a command may run."""

    words: Trust  # what stands in the command itself
    files: Trust  # what folders and files say that it leads to


def first(args: list[str], otherwise: str) -> tuple[str, list[str]]:
    """The word that must come first, and the rest; none is needed for help."""
    if args and not args[0].startswith("-"):
        return args[0], args[1:]
    if asks_for_help(args):
        return "", args
    raise ShoalError(otherwise)


def asks_for_help(args: list[str]) -> bool:
    return "--help" in args or "-h" in args

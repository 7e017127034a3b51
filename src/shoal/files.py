"""Files that are written whole or not at all, and JSON that is read with care."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import ShoalError

DEEPEST = 100  # tables inside each other in a file


class Unusable(ShoalError):
    """A file that says something wrong."""


@contextlib.contextmanager
def errors_name(path: Path) -> Iterator[None]:
    """What is wrong inside is wrong with that file, unless it is with a file that this one leads
    to."""
    try:
        yield
    except Unusable:
        raise
    except ShoalError as error:
        raise Unusable(f"{path} cannot be used: {error}") from None


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Where to write a file, which takes the place of `path` once all of it is written."""
    temporary = path.with_name(f".{path.stem}.tmp{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """All of it or nothing."""
    with atomic(path) as temporary:
        temporary.write_text(text)


def write_json(path: Path, content: Any) -> None:
    """All of it or nothing."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def read_json(path: Path, what: str) -> Any:
    """Content of a file that a run folder must have."""
    try:
        content = json.loads(read_bytes(path).decode())
        if _depth(content) <= DEEPEST:
            return content
    except (OSError, ValueError, RecursionError):
        pass
    raise ShoalError(f"{path.parent} is not {what}: it has no readable {path.name}") from None


def read_bytes(path: Path) -> bytes:
    """A plain file's content: whoever made the folder may have put a pipe or a device there."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a plain file")
    return path.read_bytes()


def _depth(content: Any) -> int:
    """How many tables and lists lie inside each other, as far as that matters."""
    depth = 0
    level = [content]
    while level and depth <= DEEPEST:
        inner = (
            one.values() if isinstance(one, dict) else one
            for one in level
            if isinstance(one, dict | list)
        )
        level = [one for values in inner for one in values]
        depth += 1
    return depth

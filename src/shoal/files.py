"""Files and folders that are written whole or not at all, and JSON that is read with care.

Every kind of file has a version, which it says as `format`. What a newer Shoal wrote is refused in
a sentence; what says none was written by 0.1.0, and is read.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import ShoalError

DEEPEST = 100  # tables inside each other in a file
FORMAT = "format"
# by name of the file; the version of a run's logs and tables is that of its config.json
VERSIONS = {
    "config.json": 1,
    "summary.json": 1,
    "checkpoint.json": 2,
    "policy.json": 1,
    "group.json": 1,
    "campaign.json": 1,
}
PLAIN = 1  # a config that the user gave another name


class Unusable(ShoalError):
    """A file that says something wrong."""


class Newer(Unusable):
    """A file that a newer Shoal wrote."""


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


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Where to write a folder, which takes the place of `path` once all of it is on the disk."""
    temporary = path.with_name(f"{path.name}.tmp")
    before = _before(path)
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        yield temporary
        for written in (*temporary.iterdir(), temporary):
            _sync(written)
        if path.exists():
            shutil.rmtree(before, ignore_errors=True)
            os.replace(path, before)
        os.replace(temporary, path)
        _sync(path.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    shutil.rmtree(before, ignore_errors=True)


def settled(path: Path) -> Path:
    """A folder that `atomic_folder` wrote, or the previous one if replacing it was cut short."""
    before = _before(path)
    return before if not path.exists() and before.exists() else path


def _before(path: Path) -> Path:
    """Path of the previous folder during replacement."""
    return path.with_name(f"{path.name}.old")


def _sync(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """All of it or nothing."""
    with atomic(path) as temporary:
        temporary.write_text(text)


def write_json(path: Path, content: Any) -> None:
    """All of it or nothing, with its version in front if it is a file that has one."""
    if path.name in VERSIONS:
        version = {FORMAT: VERSIONS[path.name]}
        content = version | content | version
    write_text(path, json.dumps(content, indent=2) + "\n")


def read_json(path: Path, what: str) -> Any:
    """Content of a file that a run folder must have; refused if a newer Shoal wrote it."""
    try:
        content = json.loads(read_bytes(path).decode())
        if _depth(content) > DEEPEST:
            raise ValueError
    except (OSError, ValueError, RecursionError):
        raise ShoalError(f"{path.parent} is not {what}: it has no readable {path.name}") from None
    _refuse_newer(path, content)
    return content


def _refuse_newer(path: Path, content: Any) -> None:
    known = VERSIONS.get(path.name, PLAIN)
    version = content.get(FORMAT, 0) if isinstance(content, dict) else 0
    if type(version) is not int or version > known:
        raise Newer(
            f"{path} has format {version!r}, and this shoal reads formats up to {known}:"
            f" install a newer shoal"
        )


def read_bytes(path: Path) -> bytes:
    """The content of a plain file."""
    refuse_special(path)
    return path.read_bytes()


def refuse_special(path: Path) -> None:
    """Refuse a pipe or a device: whoever made the folder may have put one there."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a plain file")


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

"""Write files and folders whole or not at all, and read JSON and TOML with care.

Every kind of file has a version, stored as `format`. Files of a newer Shoal are refused; files
without a version were written by 0.1.0, and are read.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .errors import ShoalError

DEEPEST = 100  # deepest nesting of tables in a file
FORMAT = "format"
# version by file name; a run's logs and tables have the version of its config.json
VERSIONS = {
    "config.json": 1,
    "summary.json": 1,
    "checkpoint.json": 2,
    "policy.json": 1,
    "group.json": 1,
    "campaign.json": 1,
    "reproduction.json": 1,
    "crossplay.json": 1,
    "export.json": 1,
    "tracking.json": 1,
    "sweep.json": 1,
    "population.json": 1,
    "zoo.json": 1,
}
PLAIN = 1  # version of a config under any other file name


class Unusable(ShoalError):
    """A file with invalid content."""


class Newer(Unusable):
    """A file written by a newer Shoal."""


@contextlib.contextmanager
def errors_name(path: Path) -> Iterator[None]:
    """Name the file in errors raised inside, except in those that name another file already."""
    try:
        yield
    except Unusable:
        raise
    except ShoalError as error:
        raise Unusable(f"{path} cannot be used: {error}") from None


@contextlib.contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Yield a path to write to; once written, that file replaces `path`."""
    temporary = path.with_name(f".{path.stem}.tmp{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a folder to write into; once it is on the disk, it replaces `path`."""
    temporary = path.with_name(f".{path.name}.tmp")
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
    """The folder that `atomic_folder` wrote, or the previous one if its replacement was
    interrupted."""
    places = (path, _before(path), path.with_name(f"{path.name}.old"))  # the last is 0.1.0's
    return next((place for place in places if place.exists()), path)


def _before(path: Path) -> Path:
    """Path of the previous folder during replacement."""
    return path.with_name(f".{path.name}.old")


def _sync(path: Path) -> None:
    """Wait until a file or folder is on the disk (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Write a text file, all or nothing."""
    with atomic(path) as temporary:
        temporary.write_text(text, "utf-8")  # whatever this machine's own encoding is


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, all or nothing; its version comes first, if that file has one."""
    if path.name in VERSIONS:
        version = {FORMAT: VERSIONS[path.name]}
        content = version | content | version
    write_text(path, json.dumps(content, indent=2) + "\n")


def read_json(path: Path, what: str) -> Any:
    """Read a file that a run folder must have; refuse one of a newer Shoal."""
    try:
        content = json.loads(read_bytes(path).decode())
        if _depth(content) > DEEPEST:
            raise ValueError
        # an escape may be half a character, which can neither be written nor shown
        json.dumps(content, ensure_ascii=False).encode()
    except (OSError, ValueError, RecursionError):
        raise ShoalError(f"{path.parent} is not {what}: it has no readable {path.name}") from None
    _refuse_newer(path, content)
    return content


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file that a user wrote."""
    try:
        return tomllib.loads(read_bytes(path).decode("utf-8"))
    except OSError as error:
        raise ShoalError(f"{path} cannot be read ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ShoalError(f"{path} is not TOML: {error}") from None
    except RecursionError:
        raise ShoalError(f"{path} has lists inside lists too deep to read: flatten them") from None


def _refuse_newer(path: Path, content: Any) -> None:
    known = VERSIONS.get(path.name, PLAIN)
    version = content.get(FORMAT, 0) if isinstance(content, dict) else 0
    if type(version) is not int or version > known:
        raise Newer(
            f"{path} has format {version!r}, and this shoal reads formats up to {known}:"
            f" install a newer shoal"
        )


def read_bytes(path: Path) -> bytes:
    """Read a regular file."""
    refuse_special(path)
    return path.read_bytes()


def refuse_special(path: Path) -> None:
    """Refuse a pipe or a device, which a folder from somebody else may contain."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "not a plain file")


def _depth(content: Any) -> int:
    """How deep tables and lists are nested; stops counting once it is too deep."""
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

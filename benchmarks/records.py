"""What scripts that record runs share: rows in a JSON file, and runs that were cut short."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # scripts import this before they choose a core
    from shoal.store.summary import Result


def whole(result: Result) -> Result:
    """The result, unless the run was told to stop: it saves and returns, and is not recorded."""
    if result.stopped:
        raise SystemExit(f"not recorded: {result.reason}")
    return result


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep others who record into this folder out, so that nobody's row is lost."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def read_rows(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text()) if path.exists() else []


def add_row(path: Path, row: dict[str, Any]) -> None:
    with locked(path):
        write_rows(path, [*read_rows(path), row])


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """One line each."""
    path.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")

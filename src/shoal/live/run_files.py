"""What a run's folder holds beside its metrics: replays, videos, faults, summary."""

from __future__ import annotations

import json
import os
import re
from collections import deque
from pathlib import Path
from typing import Any

from .. import files
from ..errors import ShoalError
from ..monitor import film, replay
from ..store import folder
from .index import Run, inside

MOST = 500  # files of a kind that are listed
NEWEST = 50  # faults that are shown
SAID = 8_000  # bytes of its console output that are shown
BIGGEST = 64 << 20  # bytes of a file that is shown
KINDS = {
    replay.FOLDER: (".json",),
    film.FOLDER: (".mp4", ".gif"),
}
NAME = re.compile(r"[\w.+,=-]{1,200}")


def listed(root: Path, run: Run, kind: str) -> list[Path]:
    """The run's replays or videos; none that a link leads out of the folder to."""
    place = run.path / kind
    if kind not in KINDS or not inside(root, place):
        return []
    try:
        found = sorted(path for path in place.iterdir() if path.suffix in KINDS[kind])
    except OSError:
        return []
    fit = (path for path in found if NAME.fullmatch(path.name) and _plain(root, path))
    return [path for path, _ in zip(fit, range(MOST), strict=False)]


def _plain(root: Path, path: Path) -> bool:
    try:
        return inside(root, path) and path.is_file() and path.stat().st_size <= BIGGEST
    except OSError:
        return False


def find(root: Path, run: Run, kind: str, name: str) -> Path | None:
    """One of the listed files, by its name."""
    return next((path for path in listed(root, run, kind) if path.name == name), None)


def console(root: Path, run: Run) -> str:
    """The end of what the run said on its console, where that was kept: sweeps and resumes do."""
    path = folder.console(run.path)
    try:
        files.refuse_special(path)
        if not inside(root, path):
            return ""
        with path.open("rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - SAID, 0))
            return file.read().decode("utf-8", "replace").strip()
    except OSError:
        return ""


def faults(run: Run) -> list[dict[str, Any]]:
    """The newest faults of environments on the host."""
    try:
        files.refuse_special(run.path / folder.FAULTS)
        with (run.path / folder.FAULTS).open("rb") as file:
            lines = deque(file, NEWEST)
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            fault = json.loads(line)
        except ValueError:
            continue
        if isinstance(fault, dict):
            found.append(fault)
    return found[::-1]


def summary(run: Run) -> dict[str, Any]:
    """How the run ended; empty while it goes on."""
    try:
        said = files.read_json(run.path / folder.SUMMARY, "a run folder")
        return said if isinstance(said, dict) else {}
    except ShoalError:
        return {}

"""The same pages as files, which open without a server."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from ..config.trust import NOTHING, Trust
from ..errors import ShoalError
from ..files import atomic_folder
from ..monitor import film, replay
from . import pages, run_files
from .index import Index, Run
from .series import Tail, as_json
from .tables import Query

MARK = ".shoal-live"  # a folder with this file was exported by us, and may be replaced
COMPARED = 12  # runs that are compared in the exported page


def export(index: Index, out: Path, trust: Trust = NOTHING) -> Path:
    """Write the site; replaces one that was exported before, and no other folder."""
    if out.exists() and not (out / MARK).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise ShoalError(f"{out} exists already and is no exported page: choose another folder")
    if out.resolve().is_relative_to(index.root) and (out.resolve() == index.root):
        raise ShoalError(f"{out} is the folder of the runs: choose another folder")
    look = pages.Look(live=False, trust=trust)
    try:
        with atomic_folder(out) as place:
            for name in ("static", "run", "data", "file"):
                (place / name).mkdir()
            for name in pages.ASSETS:
                (place / "static" / name).write_bytes(pages.asset(name))
            for run in index.runs.values():
                _run(index, run, place, look)
            chosen = frozenset([slug for slug, run in index.runs.items() if run.config][:COMPARED])
            page = pages.all_runs(index, Query(chosen=chosen), look)
            (place / "index.html").write_text(page, "utf-8")
            (place / MARK).touch()
    except OSError as error:
        raise ShoalError(f"{out} cannot be written ({error.strerror or error})") from None
    return out


def _run(index: Index, run: Run, place: Path, look: pages.Look) -> None:
    """Write a run's page, its series, replays and videos."""
    (place / "run" / f"{run.slug}.html").write_text(pages.one_run(index, run, look), "utf-8")
    tail = Tail(run.path)
    if run.config:
        tail.update()
    _script(place / "data" / f"{run.slug}.js", run.slug, as_json(tail))
    for path in run_files.listed(index.root, run, replay.FOLDER):
        name = f"{run.slug}/{path.name}"
        home = place / "data" / run.slug
        home.mkdir(exist_ok=True)
        _script(home / f"{path.name}.js", name, json.loads(path.read_bytes()))
    for path in run_files.listed(index.root, run, film.FOLDER):
        home = place / "file" / run.slug / film.FOLDER
        home.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, home / path.name)


def _script(path: Path, name: str, content: Any) -> None:
    """Write data as a script: a page opened from a file cannot fetch."""
    path.write_text(f"shoal.receive({json.dumps(name)}, {json.dumps(content)});\n", "utf-8")

"""Mirror run folders to a URL, and fetch them from there.

A run is mirrored after each checkpoint. Files go up first, each under a name with its checksum,
and last a manifest that lists them. Only what a manifest lists is read, and only if its checksum
fits: a half-written upload is never taken for a run, and leaves the one before it whole.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import uuid
from pathlib import Path
from typing import Any

from ..errors import ShoalError
from . import folder as runs
from .checkpoint import FOLDER
from .places import MANIFEST, ROOTED, errors_name, is_url, local, opened, url_of

LARGE = 1 << 26  # bytes from which a file is not read into memory
FORMAT = 1


class Elsewhere(ShoalError):
    """Another process writes there."""


class Mirror:
    """Writes a folder to its URL, again and again.

    The first call takes the place over; once another process has done so, calls are refused."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.url = url_of(folder)
        self.owner = uuid.uuid4().hex
        self.begun = False

    def push(self) -> None:
        """Upload what changed: files first, then the manifest, then delete what it lists no
        more."""
        fs, place = opened(self.url)
        with errors_name(self.url):
            before = _manifest(fs, place, self.url) if fs.exists(f"{place}/{MANIFEST}") else {}
            if self.begun and before.get("owner") != self.owner:
                raise Elsewhere(f"{self.url} goes on in another process: this one ends")
            old = before.get("files", {})
            new = {
                str(path.relative_to(self.folder)): _uploaded(fs, place, path, self.folder, old)
                for path in _files(self.folder)
            }
            _write(fs, place, {"format": FORMAT, "owner": self.owner, "files": new})
            self.begun = True
            kept = {one["name"] for one in new.values()}
            for one in old.values():
                if one["name"] not in kept:
                    with contextlib.suppress(FileNotFoundError):
                        fs.rm_file(f"{place}/{one['name']}")


def share(folder: Path) -> None:
    """Mirror a folder once, if it has a URL."""
    if url_of(folder):
        Mirror(folder).push()


def fetch(url: str) -> Path:
    """Bring a run, or a group or a campaign with its runs, to this machine.

    A run that is further here than there is left as it is."""
    fs, place = opened(url)
    with errors_name(url):
        found = [name for name in fs.find(place) if name.rpartition("/")[2] == MANIFEST]
        if not found:
            raise _nothing(url)
        for name in found:
            inner = name.rpartition("/")[0]
            rest = inner.removeprefix(place).strip("/")
            where = f"{url.rstrip('/')}/{rest}".rstrip("/")
            _pull(fs, inner, where, local(where))
    return local(url)


def fetched(word: str) -> str:
    """A word of a command, with a folder or file elsewhere brought to this machine."""
    if not is_url(word):
        return word
    if word.endswith((".json", ".toml")):
        parent, _, name = word.rpartition("/")
        fs, place = opened(parent)
        with errors_name(word):
            _pull(fs, place, parent, local(parent))
        return str(local(parent) / name)
    return str(fetch(word))


def _pull(fs: Any, place: str, url: str, path: Path) -> None:
    """Download what the manifest lists; nothing changes here unless all of it is whole."""
    manifest = _manifest(fs, place, url)
    is_run = runs.CONFIG in manifest["files"]
    if is_run and path.is_dir() and _reached(_names(path)) >= _reached(manifest["files"]):
        return
    temporary = path.with_name(f".{path.name}.fetched")
    shutil.rmtree(temporary, ignore_errors=True)
    for name, one in manifest["files"].items():
        target = temporary / name
        if not target.resolve().is_relative_to(temporary.resolve()):
            raise ShoalError(f"{url} lists {name!r}, which leads out of its folder")
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            fs.get_file(f"{place}/{one['name']}", str(target))
        if not target.exists() or _checksum(target) != one["sha256"]:
            shutil.rmtree(temporary, ignore_errors=True)
            raise ShoalError(f"{url} is damaged, as {name} is not what was written: restore it")
    path.mkdir(parents=True, exist_ok=True)
    for stale in _names(path) if is_run else ():
        (path / stale).unlink()
    for name in manifest["files"]:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(temporary / name, path / name)
    shutil.rmtree(temporary, ignore_errors=True)


def _reached(names: Any) -> tuple[int, bool]:
    """How far a run is that has files of these names."""
    steps = [int(name.split("/")[1]) for name in names if re.match(rf"{FOLDER}/\d+/", name)]
    return max(steps, default=-1), runs.SUMMARY in names


def _names(path: Path) -> list[str]:
    return [str(file.relative_to(path)) for file in _files(path)]


def _files(folder: Path) -> list[Path]:
    """Files of a folder, without those of runs inside it and those being written."""
    found = []
    for place, inner, names in os.walk(folder):
        whole = [name for name in inner if not name.endswith((".tmp", ".old"))]
        inner[:] = [name for name in whole if not Path(place, name, runs.CONFIG).exists()]
        found += [Path(place, name) for name in names if not name.startswith(".")]
    return sorted(found)


def _uploaded(fs: Any, place: str, path: Path, root: Path, old: dict[str, Any]) -> dict[str, Any]:
    """Upload a file, unless it is there; return its entry."""
    large = path.stat().st_size > LARGE
    blob = b"" if large else path.read_bytes()
    checksum = _checksum(path) if large else hashlib.sha256(blob).hexdigest()
    relative = str(path.relative_to(root))
    entry = {"name": f"{relative}@{checksum[:16]}", "sha256": checksum}
    if old.get(relative) == entry:
        return entry
    target = f"{place}/{entry['name']}"
    fs.makedirs(target.rpartition("/")[0], exist_ok=True)
    if large:  # a checkpoint's arrays, which never change
        fs.put_file(str(path), target)
    else:
        fs.pipe_file(target, blob)
    return entry


def _write(fs: Any, place: str, content: dict[str, Any]) -> None:
    """Write the manifest: object stores do so whole, a file system by renaming it."""
    body = json.dumps(content, sort_keys=True)
    text = json.dumps({"sha256": hashlib.sha256(body.encode()).hexdigest(), "body": body})
    target = f"{place}/{MANIFEST}"
    rooted = fs.protocol in ROOTED or (set(ROOTED) & set(fs.protocol))
    fs.makedirs(place, exist_ok=True)
    fs.pipe_file(f"{target}.tmp" if rooted else target, text.encode())
    if rooted:
        os.replace(f"{target}.tmp", target)


def _manifest(fs: Any, place: str, url: str) -> dict[str, Any]:
    """Read a manifest; refuse one that is not whole."""
    fs.invalidate_cache()
    try:
        told = json.loads(fs.cat_file(f"{place}/{MANIFEST}"))
        if told["sha256"] != hashlib.sha256(told["body"].encode()).hexdigest():
            raise ValueError
        content = json.loads(told["body"])
    except FileNotFoundError:
        raise _nothing(url) from None
    except (ValueError, KeyError, TypeError):
        raise ShoalError(f"{url} is damaged, as its {MANIFEST} is not whole: restore it") from None
    if content.get("format") != FORMAT:
        raise ShoalError(f"{url} was written by a newer shoal: install that")
    return content


def _nothing(url: str) -> ShoalError:
    return ShoalError(f"there is no run at {url}: name a folder that one was written to")


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()

"""The runs in a folder: found, read again only where they changed, with status and progress."""

from __future__ import annotations

import hashlib
import json
import math
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from .. import files
from ..config import campaign
from ..errors import ShoalError, printable
from ..report.results import labels
from ..store import folder
from ..store.metrics_file import LENGTH, RATE, SECONDS, STEP, returns_in

DEEP = 4  # levels of subfolders in which run folders are searched
MOST = 20_000  # runs that are shown
TAIL = 1 << 16  # bytes at the end of a metrics.jsonl in which its last lines are looked for
SILENT = 600.0  # seconds without a sign, after which a run on another machine counts as gone
LIVE = ("training", "starting")
LOOKED_AT = (folder.CONFIG, folder.SUMMARY, folder.METRICS, folder.FAULTS)
Stat = tuple[int, int, int]  # size, time of change, inode


@dataclass(frozen=True)
class Run:
    """One run folder, as the page shows it."""

    slug: str  # its name in addresses
    id: str  # its path in the folder
    path: Path
    group: str  # path of the folder that it is in
    status: str = "broken"
    why: str = ""  # reason of its end, or what is wrong with its folder
    label: str = ""  # its algorithms
    env: str = ""
    seed: int = 0
    kin: str = ""  # equal for runs that differ in nothing but their seed
    teams: tuple[str, ...] = ()
    steps: int = 0
    total: int = 0
    rate: float = 0.0
    seconds: float = 0.0
    where: str = ""  # machine, process and device
    scores: dict[str, float] = field(default_factory=dict)  # by team, of the last evaluation
    faults: int = 0  # lines of faults.jsonl
    began: float = 0.0
    updated: float = 0.0
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.id.rpartition("/")[2]

    @property
    def progress(self) -> float:
        """The share of its steps that is done, from 0 to 1."""
        return min(self.steps / self.total, 1.0) if self.total else 0.0

    @property
    def left(self) -> float:
        """Seconds until it ends; 0 if that is unknown or it does not train."""
        going = self.status == "training" and self.rate > 0
        return max(self.total - self.steps, 0) / self.rate if going else 0.0


class Sight(NamedTuple):
    """What a run looks like from outside; it changes whenever one of its files does."""

    slug: str
    stats: tuple[Stat | None, ...]
    silent: bool  # whether it gave no sign for long
    held: bool | None  # whether a process of this machine holds it, if that is told


def inside(root: Path, path: Path) -> bool:
    """Whether a path, all links followed, lies in the folder; a path that cannot be followed does
    not."""
    try:
        return path.resolve(strict=True).is_relative_to(root)
    except (OSError, RuntimeError):
        return False


def slug_of(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:16]


class Index:
    """All runs in a folder; `refresh` looks again."""

    def __init__(self, root: Path):
        self.root = root.resolve()
        self.runs: dict[str, Run] = {}  # by slug, in the order of the page
        self.names: dict[str, str] = {}  # by kin: what tells it from others
        self.crossplays: list[Path] = []
        self.version = 0
        self.seen: dict[str, Sight] = {}  # by path, of runs when they were read
        self.lock = threading.Lock()

    def refresh(self) -> set[str]:
        """Look at the folder; return the slugs of runs that are new or changed."""
        with self.lock:
            held = _held()
            now = time.time()
            seen: dict[str, Sight] = {}
            found: dict[str, Run] = {}
            crossplays: list[Path] = []
            changed: set[str] = set()
            for path in self._folders(str(self.root), DEEP, crossplays):
                before = self.seen.get(path)
                slug = before.slug if before else slug_of(self._name(path))
                sight = _sight(path, slug, held, now)
                old = self.runs.get(slug)
                if old is None or sight != before:
                    found[slug] = self._read(Path(path), self._name(path), slug, sight.held)
                    changed |= {slug} if found[slug] != old else set()
                else:
                    found[slug] = old
                seen[path] = sight
                if len(found) >= MOST:
                    break
            gone = set(self.runs) - set(found)
            self.seen = seen
            if changed or gone or crossplays != self.crossplays:
                ordered = sorted(found.values(), key=lambda run: (run.group, run.id))
                self.runs = {run.slug: run for run in ordered}
                self.crossplays = crossplays
                self.names = _names(ordered)
                self.version += 1
            return changed | gone

    def _name(self, path: str) -> str:
        """A run's path in the folder; the folder's own name if it is the run."""
        return os.path.relpath(path, self.root) if Path(path) != self.root else self.root.name

    def _folders(self, place: str, depth: int, crossplays: list[Path]) -> Iterator[str]:
        """Run folders in a place; links that lead out are not followed."""
        if os.path.isfile(f"{place}/{folder.CONFIG}"):
            yield place
            return
        try:
            entries = sorted(os.scandir(place), key=lambda entry: entry.name)
        except OSError:
            return
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if entry.name == "crossplay.json" and inside(self.root, Path(entry.path)):
                crossplays.append(Path(entry.path))
            elif depth and entry.is_dir() and self._lies_here(entry):
                yield from self._folders(entry.path, depth - 1, crossplays)

    def _lies_here(self, entry: os.DirEntry[str]) -> bool:
        return not entry.is_symlink() or inside(self.root, Path(entry.path))

    def _read(self, path: Path, name: str, slug: str, held: bool | None) -> Run:
        """Read a run; a folder that cannot be read is shown with what is wrong."""
        group = name.rpartition("/")[0]
        bare = Run(slug, name, path, group)
        try:
            for file in (*LOOKED_AT, folder.LOCK):
                if (path / file).is_symlink() and not inside(self.root, path / file):
                    raise ShoalError(f"{file} is a link that leads out of the folder")
            return _filled(bare, held)
        except ShoalError as error:
            return replace(bare, why=str(error))
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            return replace(bare, why=f"its files are not as shoal writes them ({error!r:.200})")


def _sight(path: str, slug: str, held: set[int] | None, now: float) -> Sight:
    """What a run looks like from outside; many are looked at every second, so by plain strings."""
    stats = tuple(_stat(f"{path}/{name}") for name in LOOKED_AT)
    lock = _stat(f"{path}/{folder.LOCK}")
    holds = None if held is None else bool(lock) and lock[2] in held
    silent = now - max((one[1] / 1e9 for one in stats if one), default=0) > SILENT
    return Sight(slug, (*stats, lock), silent, holds)


def _filled(bare: Run, held: bool | None) -> Run:
    """A run with all that its folder says."""
    path = bare.path
    config = files.read_json(path / folder.CONFIG, "a run folder")
    plain = campaign.plain(config)
    teams = plain["teams"]
    algorithms = list(dict.fromkeys(str(one["algorithm"]) for one in teams.values()))
    run = replace(
        bare,
        config=config,
        label=printable("+".join(algorithms), 200),
        env=printable(str(plain["env"]), 200),
        seed=int(config["settings"]["seed"]),
        kin=_kin(plain),
        teams=tuple(teams),
        total=int(config["settings"]["steps"]),
        began=(path / folder.CONFIG).stat().st_mtime,
        faults=_lines(path / folder.FAULTS),
    )
    run = _progressed(run)
    return _ended(run, held)


def _kin(plain: dict[str, Any]) -> str:
    settings = {
        name: value for name, value in plain["settings"].items() if name not in folder.UNDECIDED
    }
    return slug_of(json.dumps(plain | {"settings": settings}, sort_keys=True, default=str))


def _progressed(run: Run) -> Run:
    """Add what the last lines of metrics.jsonl say."""
    path = run.path / folder.METRICS
    try:
        files.refuse_special(path)
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - TAIL, 0))
            text = file.read()
    except OSError:
        return replace(run, updated=run.began)
    last = _line_with(text, b"")
    evaluated = _line_with(text, f'"{LENGTH}"'.encode())
    trained = _line_with(text, f'"{RATE}"'.encode())
    scores = returns_in(evaluated, run.teams, evaluation=True)
    return replace(
        run,
        steps=int(last.get(STEP, 0)),
        seconds=_number(last.get(SECONDS)),
        rate=_number(trained.get(RATE)),
        scores=_numbers(scores),
        updated=path.stat().st_mtime,
    )


def _line_with(text: bytes, word: bytes) -> dict[str, Any]:
    """The last whole line that has a word in it, as JSON; empty if there is none."""
    end = text.rfind(b"\n")
    while end > 0:
        at = text.rfind(word, 0, end)
        if at < 0:
            return {}
        start = text.rfind(b"\n", 0, at) + 1
        stop = text.find(b"\n", at)
        try:
            values = json.loads(text[start : stop if stop > 0 else end])
            if isinstance(values, dict):
                return values
        except ValueError:
            pass
        end = start - 1
    return {}


def _ended(run: Run, held: bool | None) -> Run:
    """Add the status: how it ended, or whether it still goes on, and where."""
    path = run.path
    machine, process, ours = _where(run)
    run = replace(run, where=machine)
    if (path / folder.SUMMARY).is_file():
        summary = files.read_json(path / folder.SUMMARY, "a run folder")
        reason = printable(str(summary.get("reason", folder.FINISHED)), 300)
        message = printable(str(summary.get("message", "")), 1000)
        stopped = summary.get("stopped") or reason.startswith("stopped")
        status = "finished" if reason == folder.FINISHED else "stopped" if stopped else "failed"
        return replace(
            run,
            status=status,
            why="" if status == "finished" else ": ".join(filter(None, (reason, message))),
            steps=int(summary.get("steps", run.steps)),
            seconds=_number(summary.get("seconds")),
            rate=_number(summary.get("steps_per_second")) or run.rate,
            scores=_numbers(summary.get("scores")) or run.scores,
            updated=(path / folder.SUMMARY).stat().st_mtime,
        )
    quiet = time.time() - max(run.updated, run.began) > SILENT
    going = not quiet if not ours or held is None else held
    if not going:
        return replace(run, status="dead", why="its process is gone: it can be resumed")
    where = ", ".join(filter(None, (machine, process)))
    return replace(run, status="training" if run.steps else "starting", where=where)


def _where(run: Run) -> tuple[str, str, bool]:
    """The machine and device of a run, its process, and whether it is this machine."""
    protocol = run.config.get("protocol", {})
    device = printable(str(protocol.get("device", "")), 60)
    count = protocol.get("devices", 1)
    device = f"{count} × {device}" if count != 1 else device
    try:
        holder = json.loads(files.read_bytes(run.path / folder.LOCK)[:1000])
        host = printable(str(holder["host"]), 80)
        ours = host == socket.gethostname()
        process = f"process {int(holder['pid'])}"
        return ", ".join(filter(None, (host, device))), process, ours
    except (OSError, ValueError, LookupError, TypeError):
        return device, "", True


def _held() -> set[int] | None:
    """Inodes of the files that are locked on this machine; None where that is not told."""
    try:
        lines = Path("/proc/locks").read_text().splitlines()
    except OSError:
        return None
    words = (line.split() for line in lines if " FLOCK " in line and "->" not in line)
    return {int(word[5].rpartition(":")[2]) for word in words if len(word) > 5}


def _names(runs: list[Run]) -> dict[str, str]:
    """By kin: algorithm and environment, and the options that tell it from others of the same."""
    first = {run.kin: run for run in reversed(runs) if run.kin}
    facts = [(f"{run.label} on {run.env}", _options(run.config)) for run in first.values()]
    return dict(zip(first, labels(facts), strict=True))


def _options(config: dict[str, Any]) -> dict[str, Any]:
    plain = campaign.plain(config)
    kept = {k: v for k, v in plain["settings"].items() if k not in folder.UNDECIDED}
    return flat({"env": plain["options"], "settings": kept} | plain["teams"])


def flat(tree: Any, name: str = "") -> dict[str, Any]:
    """The leaves of nested tables, by dotted name."""
    if not isinstance(tree, dict):
        return {name: tree}
    found: dict[str, Any] = {}
    for key, value in tree.items():
        found |= flat(value, f"{name}.{key}" if name else str(key))
    return found


def _stat(path: str) -> Stat | None:
    try:
        about = os.stat(path)
        return about.st_size, about.st_mtime_ns, about.st_ino
    except OSError:
        return None


def _lines(path: Path) -> int:
    try:
        return files.read_bytes(path).count(b"\n")
    except OSError:
        return 0


def _number(value: Any) -> float:
    return float(value) if type(value) in (int, float) and math.isfinite(value) else 0.0


def _numbers(values: Any) -> dict[str, float]:
    """Those of a file's values that are numbers."""
    found = values if isinstance(values, dict) else {}
    return {
        str(name): float(x)
        for name, x in found.items()
        if type(x) in (int, float) and math.isfinite(x)
    }

"""The run folder: its files, and how they are written and read."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import re
import shutil
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .. import __version__, envs, plugins
from ..config.config import Config
from ..config.trust import NOTHING, Trust, needed, words
from ..devices import setup
from ..errors import ShoalError
from ..files import errors_name, read_json, write_json
from ..options import convert, entry
from .places import exists, local, url_of
from .records import RunProtocol

CONFIG = "config.json"
METRICS = "metrics.jsonl"
EPISODES = "episodes.csv"
SUMMARY = "summary.json"
GROUP = "group.json"  # in a folder that holds the runs of several seeds
FINISHED = "finished"  # reason of a run that was trained to its end
LOCK = ".lock"  # held by the process that trains the run
STOP = ".stop"  # asks the process that trains the run to stop
CLAIM = ".claim"  # suffix of a lock file beside a folder about to be made
FAULTS = "faults.jsonl"  # exists only if an environment on the host broke
CHECKPOINTS = "checkpoints"
THEIRS = "wandb"  # subfolder that Weights & Biases writes to
FREE = (
    "out",
    "name",
    "seeds",
    "cluster",
    "devices",
    "workers",
    "patience",
    "tolerance",
    "keep",
    "save_every",
)
UNDECIDED = (
    *FREE,
    "film",
    "replays",
    "track",
    "project",
    "callbacks",
)  # settings that do not change what is learnt
CURVE = "curve.png"
POLICY = "policy"
BEST = "best"
TENSORBOARD = "tensorboard"


def plan(config: Config) -> Path:
    """Choose the run's folder; refuse a place that is taken or cannot be written to."""
    s = config.settings
    stamp = time.strftime("%Y%m%d-%H%M%S")
    which = "seeds" if s.grouped else s.seed
    name = s.name or f"{config.label}-{re.sub(r'[/:]', '__', config.env)}-{which}-{stamp}"
    path = local(s.out) / name
    try:
        path.exists()
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", "") or error
        raise ShoalError(
            f"the run folder cannot be made ({why}): choose another name or out"
        ) from None
    url = url_of(path)
    if url and exists(url):
        raise ShoalError(
            f"{url} exists already and is never overwritten: choose another name or out, or go on"
            f" with shoal resume {url}"
        )
    if path.exists() and s.name:
        flag = needed(config.to_json())
        go_on = f", or go on with shoal resume {path}{flag}" if _interrupted(path) else ""
        go_on += " (--seeds adds seeds)" if (path / GROUP).exists() else ""
        raise ShoalError(
            f"{path} exists already and is never overwritten: choose another name or out{go_on}"
        )
    again = 2
    while path.exists():
        path = path.with_name(f"{name}-{again}")
        again = again + 1
    there = next(parent for parent in path.absolute().parents if parent.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise ShoalError(
            f"the run folder {path} cannot be made, as {there} cannot be written to: choose another"
            f" out"
        )
    return path


@contextlib.contextmanager
def claimed(config: Config) -> Iterator[Path]:
    """Choose the run's folder, and keep other processes from taking it while this run compiles.

    The folder is made with its first file; without any file, nothing is left behind."""
    first = path = plan(config)
    missing = [parent for parent in path.parents if not parent.exists()]
    again = 2
    with contextlib.ExitStack() as claims:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            claims.callback(_remove_empty, missing)
            while not _claim(path, claims):
                if config.settings.name:
                    raise ShoalError(
                        f"{path} is being made by another process: choose another name or out"
                    )
                path = first.with_name(f"{first.name}-{again}")
                again = again + 1
        except OSError as error:
            raise ShoalError(
                f"the run folder {path} cannot be made ({error.strerror}): choose another out"
            ) from None
        yield path


def _claim(path: Path, claims: contextlib.ExitStack) -> bool:
    """Reserve the name until `claims` are closed or this process dies; return whether it was
    free."""
    sign = path.with_name(f".{path.name}{CLAIM}")
    with contextlib.ExitStack() as mine:
        file = mine.enter_context(sign.open("w"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        if (
            path.exists()
            or not sign.exists()
            or sign.stat().st_ino != os.fstat(file.fileno()).st_ino
        ):
            return False  # another process has made the folder, or has just released the name
        mine.callback(sign.unlink, missing_ok=True)
        claims.enter_context(mine.pop_all())
    return True


def _remove_empty(folders: list[Path]) -> None:
    """Remove the folders that are empty."""
    for folder in folders:
        with contextlib.suppress(OSError):
            folder.rmdir()


def _interrupted(path: Path) -> bool:
    """Whether a folder holds a run or a group that can be resumed."""
    with contextlib.suppress(ShoalError):
        return (path / GROUP).exists() or ((path / CONFIG).exists() and not finished(path))
    return False


def create(path: Path, config: Config, beside: dict[str, Any] | None = None) -> None:
    """Make the folder and write the config; `beside` says what it was made of, if of another
    run."""
    try:
        path.mkdir(parents=True, exist_ok=False)
    except OSError as error:
        raise ShoalError(
            f"the run folder {path} cannot be made ({error.strerror}): choose another out"
        ) from None
    facts = {"protocol": protocol(config)} | (beside or {})
    write_json(path / CONFIG, config.to_json() | facts)


def totals(path: Path) -> list[int]:
    """Total steps of a run, then its earlier totals, from before it was extended."""
    plain = read_json(path / CONFIG, "a run folder")
    with errors_name(path / CONFIG):
        now = convert(int, entry(plain, "settings", dict).get("steps"), "steps")
        earlier = entry({"extended": []} | plain, "extended", list)
        return [now, *(entry(one, "steps", int) for one in earlier)]


def extend(path: Path, steps: int, done: int) -> None:
    """Raise the total steps in a run's config to `steps`; it has made `done` so far."""
    plain = read_json(path / CONFIG, "a run folder")
    if plain["settings"]["steps"] == steps:
        return
    before = {"steps": plain["settings"]["steps"], "done": done}
    settings = plain["settings"] | {"steps": steps}
    extended = [*plain.get("extended", []), before]
    write_json(path / CONFIG, plain | {"settings": settings, "extended": extended})


def protocol(config: Config) -> RunProtocol:
    """Facts beside the config that a reader of the scores needs."""
    s = config.settings
    return {
        "versions": {
            "shoal": __version__,
            "jax": jax.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            **envs.versions(config.env),
            **plugins.versions([config.env, *words(config.to_json())]),
        },
        "device": jax.devices()[0].device_kind,
        "devices": config.devices,
        "teams": {
            team: algorithm.protocol(config.share) for team, algorithm in config.algorithms.items()
        },
        "evaluation": {
            "actions": "greedy" if s.greedy else "sampled",
            "episodes": s.eval_episodes,
            "exploration": "none" if s.greedy else "as in training after as many steps",
        },
        "score": "mean undiscounted return of one agent",
    }


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a run, so that one process at a time trains it; refuse links that lead out
    of the folder."""
    for link in (inner for inner in path.rglob("*") if inner.is_symlink()):
        # Weights & Biases makes links of its own in there
        theirs = THEIRS in link.relative_to(path).parts[:-1]
        if not theirs and not link.resolve().is_relative_to(path.resolve()):
            raise ShoalError(
                f"{link} is a link that leads out of {path}: put what it leads to in its place"
            )
    try:
        file = (path / LOCK).open("a")
    except OSError as error:
        raise ShoalError(
            f"{path} cannot be written to ({error.strerror}): mend that, or copy it to where it can"
        ) from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ShoalError(
                f"{path} is being trained by another process: wait until that has ended"
            ) from None
        (path / STOP).unlink(missing_ok=True)  # was meant for the process before
        file.truncate(0)
        file.write(json.dumps({"host": socket.gethostname(), "pid": os.getpid()}))
        file.flush()
        yield


def remove_results(path: Path) -> None:
    """Remove the summary and the policy of an earlier ending."""
    (path / SUMMARY).unlink(missing_ok=True)
    shutil.rmtree(path / POLICY, ignore_errors=True)


def clear(path: Path) -> None:
    """Remove everything in a run's folder but its config."""
    for name in (METRICS, EPISODES, FAULTS, SUMMARY):
        (path / name).unlink(missing_ok=True)
    for name in (TENSORBOARD, BEST, CHECKPOINTS):
        shutil.rmtree(path / name, ignore_errors=True)


def difference(saved: Any, now: Any, name: str = "") -> str:
    """Describe the first difference between two configs, among keys that both have and that decide
    learning."""
    if isinstance(saved, dict) and isinstance(now, dict):
        both = (key for key in saved if key in now and key not in UNDECIDED)
        return next(filter(None, (difference(saved[key], now[key], key) for key in both)), "")
    return "" if saved == now else f"{name} is {now!r}, not {saved!r}"


def no_run(path: Path, what: str) -> ShoalError:
    """The error for a path that is not `what` (such as a run)."""
    if not path.exists():
        return ShoalError(f"there is no folder {path}: name a folder that exists")
    inside = sorted(path.glob(f"*/{CONFIG}")) if path.is_dir() else []
    if inside:
        return ShoalError(
            f"{path} is a folder of runs: take one of them, such as {inside[0].parent}"
        )
    return ShoalError(f"{path} is not {what}, as it has no {CONFIG}: name another folder")


def config_of(path: Path, trust: Trust = NOTHING) -> Config:
    """Read a run's config, with the number of devices it really uses."""
    if not (path / CONFIG).is_file():
        raise no_run(path, "a run folder")
    plain = read_json(path / CONFIG, "a run folder")
    with errors_name(path / CONFIG):
        devices = entry(entry(plain, "protocol", dict), "devices", int)
        setup(devices)
        config = Config.from_json(plain, trust)
        return replace(config, settings=replace(config.settings, devices=devices))


def finished(path: Path, steps: int = 0) -> bool:
    """Whether a run was trained to its end, and for at least `steps` steps."""
    if not (path / SUMMARY).exists():
        return False
    summary = read_json(path / SUMMARY, "a run folder")
    stopped = entry(summary, "stopped", int)  # 0.1.0 saved only this
    if stopped or summary.get("reason", FINISHED) != FINISHED:
        return False
    return not steps or entry(summary, "steps", int) >= steps


def leaves_by_name(tree: Any) -> dict[str, Any]:
    """Leaves of a tree by path, in the tree's order."""
    paths = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in paths}


def with_new_names(leaves: dict[str, Any]) -> dict[str, Any]:
    """Rename leaves to today's names: 0.1.0 saved the mean square of returns in place of their
    variance."""
    new = dict(leaves)
    for name in [name for name in leaves if name.endswith("scale/square")]:
        stem = name.removesuffix("square")
        square = np.asarray(new.pop(name), np.float64)
        mean = np.asarray(leaves.get(f"{stem}mean", 0.0), np.float64)
        new[f"{stem}variance"] = np.asarray(np.maximum(square - mean**2, 0.0), np.float32)
    return new


def console(path: Path) -> Path:
    """Path of the file, beside a run's folder, for its console output."""
    return path.with_name(f"{path.name}.txt")


def last_words(path: Path) -> str:
    """The last line of a run's console output."""
    with contextlib.suppress(OSError):
        lines = console(path).read_text("utf-8", errors="replace").split("\n")
        return next(
            (line.strip().removeprefix("shoal: ") for line in reversed(lines) if line.strip()), ""
        )
    return ""

"""Checkpoints: a whole `TrainState` as arrays and JSON, all of it or nothing, and never trusted
unread.

A checkpoint is a folder `checkpoints/<steps>` with the arrays (safetensors) and what else a run
needs to go on (JSON, with the arrays' checksum). It is written beside its place, flushed to the
disk, and only then given its name, so that whatever happens meanwhile the ones before stay whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import jax
import numpy as np

from .. import files
from ..errors import ShoalError
from ..types import TrainState
from . import folder as runs
from .records import CheckpointAbout

FOLDER = runs.CHECKPOINTS
STATE = "state.safetensors"
ABOUT = "checkpoint.json"
# in front of the names of arrays that are not the state's, but the best policy's so far
BEST = "best/"
FORMAT = files.VERSIONS[ABOUT]


class CheckpointWriter:
    """Writes the checkpoints of a run while training goes on, and keeps the newest."""

    def __init__(self, run: Path, keep: int):
        self.run = run
        self.keep = keep
        self.pool = ThreadPoolExecutor(1)
        self.writing: Future | None = None

    def save(
        self, state: TrainState, about: CheckpointAbout, best: dict[str, Any] | None = None
    ) -> None:
        """Training waits for the copy; the checkpoint before this must be settled.

        `best` are the learners of the best policy so far: a run that is resumed must not take one
        it had later."""
        copy = {
            name: np.array(leaf, order="C")
            for name, leaf in runs.named(jax.device_get(state)).items()
        }
        copy |= {
            f"{BEST}{name}": np.array(leaf, order="C")
            for name, leaf in runs.named(best or {}).items()
        }
        self.writing = self.pool.submit(write, self.run, copy, about, self.keep)

    @property
    def idle(self) -> bool:
        """Nothing is being written."""
        return self.writing is None or self.writing.done()

    def settle(self) -> Path | None:
        """Wait until all is on the disk; the checkpoint written since it was last asked, if there
        is one."""
        writing = self.writing
        self.writing = None
        return writing.result() if writing else None

    def close(self) -> None:
        self.settle()
        self.pool.shutdown()


def write(run: Path, arrays: dict[str, np.ndarray], about: CheckpointAbout, keep: int) -> Path:
    """One checkpoint; afterwards only the `keep` newest are left."""
    from safetensors.numpy import save

    there = place(run, about["steps"])
    temporary = there.with_suffix(".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        blob = save(arrays)
        flushed(temporary / STATE, blob)
        facts = about | {files.FORMAT: FORMAT}
        files.write_json(temporary / ABOUT, facts | {"sha256": _checksum(blob, facts)})
        sync(temporary / ABOUT)
        sync(temporary)
        shutil.rmtree(there, ignore_errors=True)
        os.replace(temporary, there)
        sync(there.parent)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        why = error.strerror or error
        raise ShoalError(
            f"a checkpoint cannot be written to {there.parent} ({why}); those before it stay"
        ) from None
    for old in list(places(run))[keep:]:
        shutil.rmtree(old, ignore_errors=True)
    return there


def place(run: Path, steps: int) -> Path:
    """Where the checkpoint after so many steps is."""
    return run / FOLDER / f"{steps:012d}"


def places(run: Path) -> Iterator[Path]:
    """The checkpoints of a run, the newest first."""
    folder = run / FOLDER
    names = [path for path in folder.glob("*") if path.name.isdigit()] if folder.is_dir() else []
    yield from sorted(names, reverse=True)


def done(run: Path) -> int:
    """The steps after which a run was saved last."""
    return next((int(place.name) for place in places(run)), 0)


def newest(run: Path, like: TrainState) -> tuple[TrainState, CheckpointAbout, list[str]]:
    """The newest that is whole, with arrays as in `like`; what was said beside it; what is wrong
    with newer ones."""
    wrong: list[str] = []
    for place in places(run):
        try:
            return *read(place, like), wrong
        except files.Newer:  # whole, and not to be overwritten by going on from an older one
            raise
        except ShoalError as error:
            wrong.append(str(error))
    why = f": {wrong[0]}" if wrong else ""
    raise ShoalError(f"{run} has no checkpoint to resume from{why}")


def read(place: Path, like: TrainState) -> tuple[TrainState, CheckpointAbout]:
    """One checkpoint, if every byte of it is as it was written and it fits."""
    about, leaves = opened(place)
    return _fitted(
        place, like, {name: leaf for name, leaf in leaves.items() if not name.startswith(BEST)}
    ), cast(CheckpointAbout, about)


def best(place: Path, like: dict[str, Any]) -> dict[str, Any]:
    """The learners of the best policy there was when it was written."""
    leaves = opened(place)[1]
    return _fitted(
        place,
        like,
        {name[len(BEST) :]: leaf for name, leaf in leaves.items() if name.startswith(BEST)},
    )


def opened(place: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What is said in a checkpoint and its arrays by name, if every byte is as it was written."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    about = files.read_json(place / ABOUT, "a whole checkpoint")
    try:
        blob = files.read_bytes(place / STATE)
    except OSError as error:
        raise ShoalError(f"the checkpoint {place} cannot be read ({error.strerror})") from None
    if not isinstance(about, dict) or about.get(files.FORMAT) != FORMAT:
        raise ShoalError(f"the checkpoint {place} was written by a shoal older than 0.1.0")
    if about.pop("sha256", "") != _checksum(blob, about):
        raise ShoalError(f"the checkpoint {place} is damaged: its checksum does not fit")
    if not _sound(about):
        raise ShoalError(f"the checkpoint {place} does not say what shoal writes there")
    try:
        return about, runs.renamed(load(blob))
    # or a kind of number that numpy has not
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ShoalError(f"the checkpoint {place} cannot be read: {error}") from None


def _sound(about: dict[str, Any]) -> bool:
    """Whether what is said beside the arrays can be `CheckpointAbout`."""
    best = about.get("best")
    logs = about.get("logs")
    return (
        type(about.get("steps")) is int
        and 0 <= about["steps"] < 2**32
        and type(about.get("seconds")) in (int, float)
        and isinstance(logs, dict)
        and all(type(size) is int and size >= 0 for size in logs.values())
        and (best is None or (isinstance(best, dict) and {"team", "steps", "score"} == set(best)))
    )


def _fitted(place: Path, like: Any, leaves: dict[str, np.ndarray]) -> Any:
    wanted = runs.named(like)  # an earlier version kept more of those who only act
    shapes = {name: (leaf.shape, leaf.dtype) for name, leaf in leaves.items() if name in wanted}
    if shapes != {name: (np.shape(leaf), np.dtype(leaf.dtype)) for name, leaf in wanted.items()}:
        raise ShoalError(f"the checkpoint {place} does not fit its run's config")
    return jax.tree.unflatten(jax.tree.structure(like), [leaves[name] for name in wanted])


def _checksum(blob: bytes, facts: Mapping[str, Any]) -> str:
    """Of the arrays and of what is said beside them."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode() + blob).hexdigest()


def flushed(path: Path, content: bytes) -> None:
    """A file that is on the disk when this returns."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Until a file or folder is on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Checkpoints: a whole `TrainState` as arrays and JSON, all of it or nothing, and never trusted unread.

A checkpoint is a folder `checkpoints/<steps>` with the arrays (safetensors) and what else a run needs to go on (JSON,
with the arrays' checksum). It is written beside its place, flushed to the disk, and only then given its name, so that
whatever happens meanwhile the ones before stay whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np

from . import runs
from .types import ShoalError, TrainState

FOLDER, STATE, ABOUT = "checkpoints", "state.safetensors", "checkpoint.json"
FORMAT = 1


class Keeper:
    """Writes the checkpoints of a run while training goes on, and keeps the newest."""

    def __init__(self, run: Path, keep: int):
        self.run, self.keep = run, keep
        self.pool = ThreadPoolExecutor(1)
        self.writing: Future | None = None

    def save(self, state: TrainState, about: dict[str, Any]) -> None:
        """Training waits for the copy, and for the checkpoint before this if that is still being written."""
        self.settle()
        copy = {name: np.array(leaf, order="C") for name, leaf in runs.named(jax.device_get(state)).items()}
        self.writing = self.pool.submit(write, self.run, copy, about, self.keep)

    def settle(self) -> None:
        """Until all is on the disk."""
        if self.writing is not None:
            self.writing.result()
        self.writing = None

    def close(self) -> None:
        self.settle()
        self.pool.shutdown()


def write(run: Path, arrays: dict[str, np.ndarray], about: dict[str, Any], keep: int) -> Path:
    """One checkpoint; afterwards only the `keep` newest are left."""
    from safetensors.numpy import save

    place = run / FOLDER / f"{about['steps']:012d}"
    temporary = place.with_suffix(".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir(parents=True)
        blob = save(arrays)
        _flushed(temporary / STATE, blob)
        facts = about | {"format": FORMAT}
        runs.write_json(temporary / ABOUT, facts | {"sha256": _checksum(blob, facts)})
        _sync(temporary / ABOUT)
        _sync(temporary)
        shutil.rmtree(place, ignore_errors=True)
        os.replace(temporary, place)
        _sync(place.parent)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        why = error.strerror or error
        raise ShoalError(f"a checkpoint cannot be written to {place.parent} ({why}); those before it stay") from None
    for old in list(places(run))[keep:]:
        shutil.rmtree(old, ignore_errors=True)
    return place


def places(run: Path) -> Iterator[Path]:
    """The checkpoints of a run, the newest first."""
    folder = run / FOLDER
    names = [path for path in folder.glob("*") if path.name.isdigit()] if folder.is_dir() else []
    yield from sorted(names, reverse=True)


def newest(run: Path, like: TrainState) -> tuple[TrainState, dict[str, Any], list[str]]:
    """The newest that is whole, with arrays as in `like`; what was said beside it; what is wrong with newer ones."""
    wrong: list[str] = []
    for place in places(run):
        try:
            return *read(place, like), wrong
        except ShoalError as error:
            wrong.append(str(error))
    why = f": {wrong[0]}" if wrong else ""
    raise ShoalError(f"{run} has no checkpoint to resume from{why}")


def read(place: Path, like: TrainState) -> tuple[TrainState, dict[str, Any]]:
    """One checkpoint, if every byte of it is as it was written and it fits."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    about = runs.read_json(place / ABOUT, "a whole checkpoint")
    try:
        blob = (place / STATE).read_bytes()
    except OSError as error:
        raise ShoalError(f"the checkpoint {place} cannot be read ({error.strerror})") from None
    if not isinstance(about, dict) or about.get("format") != FORMAT:
        raise ShoalError(f"the checkpoint {place} was written by another version of shoal")
    if about.pop("sha256", "") != _checksum(blob, about):
        raise ShoalError(f"the checkpoint {place} is damaged: its checksum does not fit")
    try:
        leaves = load(blob)
    except SafetensorError as error:
        raise ShoalError(f"the checkpoint {place} cannot be read: {error}") from None
    wanted = runs.named(like)
    shapes = {name: (leaf.shape, leaf.dtype) for name, leaf in leaves.items()}
    if shapes != {name: (np.shape(leaf), np.dtype(leaf.dtype)) for name, leaf in wanted.items()}:
        raise ShoalError(f"the checkpoint {place} does not fit its run's config")
    return jax.tree.unflatten(jax.tree.structure(like), [leaves[name] for name in wanted]), about


def _checksum(blob: bytes, facts: dict[str, Any]) -> str:
    """Of the arrays and of what is said beside them."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode() + blob).hexdigest()


def _flushed(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

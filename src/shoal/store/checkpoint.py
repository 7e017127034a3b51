"""Checkpoints: a whole `TrainState` as arrays and JSON, written all or nothing, read with checks.

A checkpoint is a folder `checkpoints/<steps>` with the arrays (safetensors) and whatever else a run
needs to go on (JSON, with a checksum of the arrays). It is written under a temporary name and
renamed once it is on the disk, so that a crash leaves the checkpoints before it whole.
"""

from __future__ import annotations

import hashlib
import json
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
# prefix of arrays that belong to the best policy so far, not to the state
BEST = "best/"
FORMAT = files.VERSIONS[ABOUT]
CURE = "use another checkpoint of the run"


class CheckpointWriter:
    """Writes a run's checkpoints in the background, and keeps only the newest."""

    def __init__(self, run: Path, keep: int):
        self.run = run
        self.keep = keep
        self.pool = ThreadPoolExecutor(1)
        self.writing: Future | None = None

    def save(
        self, state: TrainState, about: CheckpointAbout, best: dict[str, Any] | None = None
    ) -> None:
        """Copy a state on the host and write it in the background; call `settle` first.

        `best` are the learners of the best policy so far, for a resumed run to go back to."""
        copy = {
            name: np.array(leaf, order="C") for name, leaf in runs.leaves_by_name(state).items()
        }
        copy |= {
            f"{BEST}{name}": np.array(leaf, order="C")
            for name, leaf in runs.leaves_by_name(best or {}).items()
        }
        self.writing = self.pool.submit(write, self.run, copy, about, self.keep)

    @property
    def idle(self) -> bool:
        """Whether no checkpoint is being written."""
        return self.writing is None or self.writing.done()

    def settle(self) -> Path | None:
        """Wait until all is on the disk; return the checkpoint written since the last call, if
        any."""
        writing = self.writing
        self.writing = None
        return writing.result() if writing else None

    def close(self) -> None:
        self.settle()
        self.pool.shutdown()


def write(run: Path, arrays: dict[str, np.ndarray], about: CheckpointAbout, keep: int) -> Path:
    """Write a checkpoint, and delete all but the `keep` newest."""
    from safetensors.numpy import save

    there = place(run, about["steps"])
    try:
        with files.atomic_folder(there) as temporary:
            blob = save(arrays)
            (temporary / STATE).write_bytes(blob)
            facts = about | {files.FORMAT: FORMAT}
            files.write_json(temporary / ABOUT, facts | {"sha256": _checksum(blob, facts)})
    except OSError as error:
        why = error.strerror or error
        raise ShoalError(
            f"a checkpoint cannot be written to {there.parent} ({why}); those before it stay:"
            f" mend that, then shoal resume {run}"
        ) from None
    for old in list(places(run))[keep:]:
        shutil.rmtree(old, ignore_errors=True)
    return there


def place(run: Path, steps: int) -> Path:
    """Folder of the checkpoint after `steps` steps."""
    return run / FOLDER / f"{steps:012d}"


def places(run: Path) -> Iterator[Path]:
    """Checkpoints of a run, newest first."""
    folder = run / FOLDER
    names = [path for path in folder.glob("*") if path.name.isdigit()] if folder.is_dir() else []
    yield from sorted(names, reverse=True)


def done(run: Path) -> int:
    """Steps at the newest checkpoint of a run."""
    return next((int(place.name) for place in places(run)), 0)


def newest(run: Path, like: TrainState) -> tuple[TrainState, CheckpointAbout, list[str]]:
    """Read the newest intact checkpoint, with arrays as in `like`.

    Returns state, JSON, and what is wrong with newer checkpoints."""
    wrong: list[str] = []
    for place in places(run):
        try:
            return *read(place, like), wrong
        except files.Newer:  # intact: going on from an older one would overwrite it
            raise
        except ShoalError as error:
            wrong.append(str(error))
    why = f": {wrong[0]}" if wrong else ""
    raise ShoalError(
        f"{run} has no checkpoint to resume from{why}; begin another run with shoal train"
        f" {run / runs.CONFIG}"
    )


def read(place: Path, like: TrainState) -> tuple[TrainState, CheckpointAbout]:
    """Read state and JSON of a checkpoint; refuse damage and arrays unlike those of `like`."""
    about, leaves = opened(place)
    state = {name: leaf for name, leaf in leaves.items() if not name.startswith(BEST)}
    return _fitted(place, like, state), cast(CheckpointAbout, about)


def read_best(place: Path, like: dict[str, Any]) -> dict[str, Any]:
    """Read the acting part of the best policy's learners from a checkpoint, with arrays as in
    `like`."""
    leaves = opened(place)[1]
    best = {name[len(BEST) :]: leaf for name, leaf in leaves.items() if name.startswith(BEST)}
    return _fitted(place, like, best)


def opened(place: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Read JSON and arrays, by name, of a checkpoint; refuse one that is damaged."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    about = files.read_json(place / ABOUT, "a whole checkpoint")
    try:
        blob = files.read_bytes(place / STATE)
    except OSError as error:
        raise ShoalError(
            f"the checkpoint {place} cannot be read ({error.strerror}): {CURE}"
        ) from None
    if not isinstance(about, dict) or about.get(files.FORMAT) != FORMAT:
        raise ShoalError(f"the checkpoint {place} was written by a shoal older than 0.1.0: {CURE}")
    if about.pop("sha256", "") != _checksum(blob, about):
        raise ShoalError(f"the checkpoint {place} is damaged, its checksum does not fit: {CURE}")
    if not _sound(about):
        raise ShoalError(f"the checkpoint {place} does not say what shoal writes there: {CURE}")
    try:
        return about, runs.with_new_names(load(blob))
    # TypeError: a dtype that numpy does not have
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ShoalError(f"the checkpoint {place} cannot be read ({error}): {CURE}") from None


def _sound(about: dict[str, Any]) -> bool:
    """Whether the JSON has the types of `CheckpointAbout`."""
    logs = about.get("logs")
    return (
        type(about.get("steps")) is int
        and 0 <= about["steps"] < 2**32
        and type(about.get("seconds")) in (int, float)
        and isinstance(logs, dict)
        and all(type(size) is int and size >= 0 for size in logs.values())
    )


def _fitted(place: Path, like: Any, leaves: dict[str, np.ndarray]) -> Any:
    wanted = runs.leaves_by_name(like)  # an earlier version kept more of learners that only act
    shapes = {name: (leaf.shape, leaf.dtype) for name, leaf in leaves.items() if name in wanted}
    if shapes != {name: (np.shape(leaf), np.dtype(leaf.dtype)) for name, leaf in wanted.items()}:
        raise ShoalError(f"the checkpoint {place} does not fit its run's config: {CURE}")
    return jax.tree.unflatten(jax.tree.structure(like), [leaves[name] for name in wanted])


def _checksum(blob: bytes, facts: Mapping[str, Any]) -> str:
    """Checksum of arrays and JSON."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode() + blob).hexdigest()

"""Fork a run: another run that goes on from one of its checkpoints with other settings.

All that decides its future is copied, so that a fork without changes ends, on compiled games, as
its run does, bit for bit.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

from ..config.config import Config
from ..errors import ShoalError
from ..files import read_bytes
from ..monitor.console import Console
from ..store import checkpoint, folder
from ..store.summary import Result
from .trainer import Trainer


def fork(source: Path, config: Config, at: int = 0, quiet: bool = False) -> Result:
    """Train a fork of a run to the end of its config."""
    place = checkpoint_of(source, at)
    _refuse_trained(place, config)
    trainer = Trainer(config, Console(quiet))
    try:
        checkpoint.read(place, trainer.loop.template(config.settings.seed))
        with folder.claimed(config) as path:
            copy(place, path, config)
    except BaseException:
        with contextlib.closing(trainer.loop), contextlib.closing(trainer.evaluations):
            raise
    return trainer.resume(path)


def checkpoint_of(source: Path, at: int = 0) -> Path:
    """The checkpoint of a run after `at` steps; 0 takes its newest."""
    there = [int(place.name) for place in checkpoint.places(source)]
    if not there:
        raise ShoalError(f"{source} has no checkpoint to fork from: name a run that was trained")
    if at and at not in there:
        known = ", ".join(map(str, sorted(there)))
        raise ShoalError(f"{source} has no checkpoint after {at} steps: it has some after {known}")
    return checkpoint.place(source, at or there[0])


def copy(place: Path, path: Path, config: Config) -> None:
    """Make a run's folder that goes on from a checkpoint of another run, with another config."""
    about, arrays = checkpoint.opened(place)
    source = place.parent.parent
    origin = {"forked": {"run": str(source), "steps": about["steps"]}}
    temporary = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    folder.create(temporary, config, beside=origin)
    for name, size in about["logs"].items():
        (temporary / name).write_bytes(read_bytes(source / name)[:size])
    facts = about | {"config": config.to_json(), "protocol": folder.protocol(config)}
    checkpoint.write(temporary, arrays, facts, config.settings.keep)  # type: ignore[arg-type]
    os.replace(temporary, path)


def _refuse_trained(place: Path, config: Config) -> None:
    done = int(place.name)
    if config.settings.steps <= done:
        raise ShoalError(
            f"{place.parent.parent} has been trained for {done:,} of {config.settings.steps:,}"
            f" steps: ask for more, as in --steps {2 * done}, or fork it earlier with --at"
        )

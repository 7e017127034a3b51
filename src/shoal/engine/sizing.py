"""The size of a run: iterations per call, memory and disk space."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..config.config import Config
from ..errors import ShoalError

# multiplications of one device per call: about a second
WORK_PER_CALL = {"cpu": 2e10, "other": 1e12}
UNITS = {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3}
LOG_POINTS = 50  # least number of calls in a run
HOSTED_POINTS = 200  # about so many on the host, where a run can stop within a call


def iterations(config: Config, learners: dict[str, Any]) -> int:
    """Iterations per call: about a second of work, but enough calls for logging and stopping."""
    s = config.settings
    work = 1e5  # cost of the game itself, per step
    for team, algorithm in config.algorithms.items():
        # Adam keeps two moments per weight
        weights = sum(np.size(leaf) for leaf in jax.tree.leaves(learners[team])) / 3
        updates = algorithm.protocol(config.share)["updates_per_step"]
        # a gradient costs three forward passes
        work += weights * algorithm.spec.n * (2 + 6 * updates)
    needed = -(-s.steps // (s.games * s.window))
    if config.hosted:
        return -(-needed // HOSTED_POINTS)
    speed = WORK_PER_CALL["cpu" if jax.default_backend() == "cpu" else "other"] * config.devices
    fitting = int(speed / (work * s.games * s.window))
    calls = -(-needed // max(fitting, 1))
    calls = min(max(calls, LOG_POINTS, s.evaluations + 1), needed)
    return -(-needed // calls)


def readable(size: float) -> str:
    """A size in words: `1.2 GB`."""
    unit = next((u for u in UNITS if size >= UNITS[u]), "bytes")
    return f"{size / UNITS.get(unit, 1):.3g} {unit}"


def check_memory(need: float, there: float) -> None:
    """Refuse a run whose memories need more bytes than there are."""
    if need > there:
        raise ShoalError(
            f"the memories need {readable(need)}, but there are {readable(there)}: lower capacity"
        )


def check_disk(path: Path, size: float, keep: int) -> None:
    """Refuse checkpoints for which the disk has no room: those kept and one being written."""
    there = next(parent for parent in path.absolute().parents if parent.exists())
    free = shutil.disk_usage(there).free
    if size * (keep + 1) > free:
        raise ShoalError(
            f"{keep} checkpoints and one being written need {readable(size * (keep + 1))} of"
            f" disk, but {there} has {readable(free)}: lower capacity or keep, or choose"
            f" another out"
        )

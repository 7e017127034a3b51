"""The arrays that matches write to, in memory shared by several processes."""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
from collections.abc import Sequence
from typing import IO

import numpy as np

from ...errors import ShoalError
from ...types import Spec

METRICS = "metrics"  # name of the metrics array; names of team arrays contain a slash
FAST = "/dev/shm"  # a folder in memory
# errors of a full folder
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM)


def layout(
    teams: dict[str, Spec], games: int, metrics: Sequence[str] = ()
) -> dict[str, tuple[tuple[int, ...], type]]:
    """Shape and type of every array.

    Names are `<team>/<field>`, or a field of the match itself.
    """
    arrays: dict[str, tuple[tuple[int, ...], type]] = {
        "state": ((games, next(iter(teams.values())).state), np.float32),
        "first": ((games,), np.bool_),  # this instant opens an episode
        "over": ((games,), np.bool_),  # this instant ends an episode
        "broken": ((games,), np.bool_),  # the episode before this opening broke
        "episode": ((games,), np.int64),  # number of episodes opened
        "taken": ((games,), np.int64),  # steps of the current episode
        "busy": ((games,), np.bool_),  # being stepped right now
        "creating": ((games,), np.bool_),  # creating its environment right now
        "shown": ((games,), np.bool_),  # to be rendered
    }
    if metrics:  # of the last finished episode, in the order of the names
        arrays[METRICS] = ((games, len(metrics)), np.float32)
    for team, spec in teams.items():
        agents = (games, spec.n)
        size = spec.action.size
        arrays |= {
            f"{team}/obs": ((*agents, spec.obs), np.uint8 if spec.pixels else np.float32),
            f"{team}/legal": ((*agents, size), np.bool_),
            f"{team}/alive": (agents, np.bool_),
            f"{team}/reward": (agents, np.float32),
            f"{team}/discount": (agents, np.float32),
            f"{team}/action": (
                (*agents, *spec.action.shape),
                np.dtype(spec.action.dtype).type,
            ),
        }
    return arrays


def shared(
    memory: IO[bytes], teams: dict[str, Spec], games: int, metrics: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """Map the arrays of `layout` onto a file that several processes have open; zeros if new."""
    arrays = {}
    offset = 0
    size = room(teams, games, metrics)
    if os.fstat(memory.fileno()).st_size < size:
        memory.truncate(size)
    block = mmap.mmap(memory.fileno(), size)
    for name, (shape, kind) in layout(teams, games, metrics).items():
        arrays[name] = np.ndarray(shape, kind, block, offset)
        offset += _bytes(shape, kind)
    return arrays


def room(teams: dict[str, Spec], games: int, metrics: Sequence[str] = ()) -> int:
    """Bytes of the arrays of `layout`."""
    return sum(_bytes(shape, kind) for shape, kind in layout(teams, games, metrics).values())


def _bytes(shape: tuple[int, ...], kind: type) -> int:
    return -(-int(np.prod(shape)) * np.dtype(kind).itemsize // 64) * 64  # no two in one cache line


def reserve(size: int) -> IO[bytes]:
    """A nameless file of `size` zeros, in memory if there is room."""
    folders = [*([FAST] if os.path.isdir(FAST) else []), tempfile.gettempdir()]
    for folder in folders:
        try:
            memory = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 open until the arena is closed
        except OSError:  # it cannot be written to
            continue
        try:
            memory.truncate(size)
            # reserve now: writing to a full folder later would kill the process
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(memory.fileno(), 0, size)
            return memory
        except OSError as error:
            memory.close()
            if error.errno not in FULL:
                raise
    raise ShoalError(
        f"the games need {size / 1e6:.3g} MB that their processes share, and"
        f" {' and '.join(folders)} have no room for them or cannot be written to: lower games or"
        " eval_episodes, or set TMPDIR to a folder that has"
    )

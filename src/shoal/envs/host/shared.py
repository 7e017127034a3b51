"""The arrays that matches are written to, in memory that several processes share."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import IO

import numpy as np

from ...types import Discrete, Spec

METRICS = "metrics"  # the array of what environments say; no team's has a name without a slash


def layout(
    teams: dict[str, Spec], games: int, metrics: Sequence[str] = ()
) -> dict[str, tuple[tuple[int, ...], type]]:
    """Shape and type of every array matches are written to: `<team>/<field>`, or a field of the
    match itself."""
    arrays: dict[str, tuple[tuple[int, ...], type]] = {
        "state": ((games, next(iter(teams.values())).state), np.float32),
        "first": ((games,), np.bool_),  # this instant opens an episode
        "over": ((games,), np.bool_),  # this one ends it
        "broken": ((games,), np.bool_),  # the episode before this opening broke
        "episode": ((games,), np.int64),  # how many have been opened
        "taken": ((games,), np.int64),  # steps of the one under way
        "busy": ((games,), np.bool_),  # it is being stepped right now
        "making": ((games,), np.bool_),  # it is being made right now
        "shown": ((games,), np.bool_),  # it is to be drawn
    }
    if metrics:  # of the episode that ended last, in the order of their names
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
            f"{team}/action": (agents, np.int32)
            if isinstance(spec.action, Discrete)
            else ((*agents, size), np.float32),
        }
    return arrays


def shared(
    memory: IO[bytes], teams: dict[str, Spec], games: int, metrics: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """The arrays of `layout` in a file that several processes have open; all zeros when it is
    new."""
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

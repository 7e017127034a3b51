"""A window of games on the host: where it begins and what was played."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from jax import Array

from ..types import Clock, View


class PlayedWindow(NamedTuple):
    """A window of all teams as played; the first axis is that of devices."""

    streams: dict[str, View]  # [D,T+1,B/D,…]
    actions: dict[str, Array]  # [D,T,B/D,…]
    records: dict[str, Any]  # [D,T,B/D,…]
    carries: dict[str, Any]  # [D,B/D,…] at instant 0
    carries_end: dict[str, Any]  # [D,B/D,…] and at instant T
    ended: Array  # [D,T,B/D] bool: an episode ended just before this step
    episode_metrics: dict[str, Array]  # [D,T,B/D] by metric: the environment's own, of that episode


class PlayedSteps(NamedTuple):
    """A window as the games gave it, before broken episodes are struck out."""

    streams: dict[str, View]  # [T+1,D,B/D,…]
    actions: dict[str, np.ndarray]  # [T,D,B/D,…]
    records: dict[str, Any]  # [T,D,B/D,…]
    carries: dict[str, Any]  # [D,B/D,…] at instant T
    episode_metrics: dict[str, np.ndarray]  # [T,D,B/D] by metric: the environment's own
    broken: np.ndarray  # [T,D,B/D] bool: steps after which an episode broke
    lost: np.ndarray  # [D,B/D] bool: games of which nothing came back


class Beginning(NamedTuple):
    """What decides a window, beside the learners that act."""

    clock: Clock
    views: dict[str, View]  # [D,B/D,…]
    carries: dict[str, Any]  # [D,B/D,…]
    key: np.ndarray  # [D,…] of the iteration after it
    keys_play: np.ndarray  # [D,T,1+teams,…]
    keys_learn: np.ndarray  # [D,teams,…]


def by_game(leaf: np.ndarray, axis: int) -> np.ndarray:
    """A view of `[…,D,B/D,…]` as `[…,B,…]`; `axis` is that of devices."""
    shape = leaf.shape
    return leaf.reshape(*shape[:axis], shape[axis] * shape[axis + 1], *shape[axis + 2 :])


def valid_steps(steps: PlayedSteps) -> int:
    """Number of steps that count, as `Window.valid` has them, once broken episodes are struck."""
    return int((~next(iter(steps.streams.values())).first[1:]).sum())


def strike(
    streams: dict[str, View], ended: np.ndarray, earned: dict[str, np.ndarray], broken: np.ndarray
) -> None:
    """Strike broken episodes from a window, in place: their steps become invalid and earn nothing.

    `broken [T,D,B/D]` marks the steps after which an episode broke. Earlier windows with steps of
    it have been learnt from already.
    """
    opened = next(iter(streams.values())).first.copy()
    for step, *game in zip(*np.nonzero(broken), strict=True):
        start = max(np.nonzero(opened[(slice(step + 1), *game)])[0], default=0)
        ended[(step, *game)] = False
        gone = (slice(start + 1, step + 2), *game)
        for team, view in streams.items():
            view.first[gone] = True  # the mark of an invalid step
            view.reward[gone] = 0.0
            if not start:
                earned[team][tuple(game)] = 0.0

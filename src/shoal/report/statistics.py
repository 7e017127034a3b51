"""Estimates from few runs with intervals: interquartile means, profiles, probabilities of
improvement.

Agarwal et al. 2021, "Deep reinforcement learning at the edge of the statistical precipice": every
interval is a percentile interval of the stratified bootstrap. A stratum is the runs of one task,
one score per seed along the last axis; runs are resampled within their task, so that every task
keeps its weight. `scipy.stats.bootstrap` does this, also if tasks have different numbers of runs,
as after a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

RESAMPLES = 2_000
LEVEL = 0.95
FEW = 5  # seeds; intervals from fewer are too narrow
TRIM = 0.25  # share cut off at either end: the middle half is left

Strata = Sequence[np.ndarray]  # one [...,seeds] per task


class Estimate(NamedTuple):
    """A value and its interval; no interval if a task has only one seed."""

    value: np.ndarray
    low: np.ndarray | None = None
    high: np.ndarray | None = None


def iqm(*strata: np.ndarray, axis: int = -1) -> np.ndarray:
    """Interquartile mean: the mean of the middle half of all scores; of fewer than four, of all."""
    from scipy.stats import trim_mean

    return trim_mean(np.concatenate(strata, axis), TRIM, axis)


def mean(*strata: np.ndarray, axis: int = -1) -> np.ndarray:
    return np.concatenate(strata, axis).mean(axis)


def better(*strata: np.ndarray, axis: int = -1) -> np.ndarray:
    """Probability that a run of one algorithm beats a run of the other on the same task.

    The first half of `strata` are the one's tasks, the second half the other's."""
    half = len(strata) // 2
    wins = [_beats(one, other) for one, other in zip(strata[:half], strata[half:], strict=True)]
    return np.mean(wins, axis=0)


def _beats(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    one = one[..., :, None]
    other = other[..., None, :]
    return ((one > other) + 0.5 * (one == other)).mean((-2, -1))


def estimate(strata: Strata, statistic: Callable[..., np.ndarray] = iqm) -> Estimate:
    """A statistic of all runs, with its interval. Draws are fixed: equal runs give equal
    intervals."""
    from scipy.stats import bootstrap

    value = statistic(*strata)
    if min(runs.shape[-1] for runs in strata) < 2:
        return Estimate(value)
    drawn = bootstrap(
        strata,
        statistic,
        n_resamples=RESAMPLES,
        batch=200,
        vectorized=True,
        axis=-1,
        confidence_level=LEVEL,
        method="percentile",
        rng=np.random.default_rng(0),
    )
    return Estimate(value, *drawn.confidence_interval)


def profile(strata: Strata, levels: np.ndarray) -> Estimate:
    """The share of runs, over all tasks, whose score is above each level `[L]`."""
    return estimate([(runs > levels[:, None]).astype(float) for runs in strata], mean)


def improvement(one: Strata, other: Strata) -> Estimate:
    """Probability that one algorithm beats the other, over their tasks, which must be the same."""
    return estimate([*one, *other], better)

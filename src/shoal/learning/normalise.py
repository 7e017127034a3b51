"""Running statistics: of returns, and of what the agents of each owner observe."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from .reduce import moments, total

FLOOR = 0.01  # smallest deviation: a game with constant returns has none


class ReturnNormaliser(NamedTuple):
    """Running mean and variance of returns, debiased."""

    mean: Array
    variance: Array
    windows: Array  # number seen so far, decayed

    def update(
        self,
        x: Array,
        weight: Array,
        decay: float = 0.99,
        axis: tuple[int, ...] | None = None,
    ) -> ReturnNormaliser:
        """Update from a window's returns, under weights that add up to 1, or are all 0.

        With a decay of 1 all windows count alike. `axis` are the leading axes to average over.
        """
        mean, variance = moments(x, weight, axis)
        # exactly 1, or 0 where no agent acted: rounded above 1, the first step would leave a
        # variance below 0, and below 1 one too large, by the square of the mean
        acted = jnp.float32(total(weight.sum()) > 0)
        windows = jnp.where(acted > 0, decay * self.windows + 1, self.windows)
        step = acted / jnp.maximum(windows, 1.0)
        return ReturnNormaliser(*_mixed(self.mean, self.variance, mean, variance, step), windows)

    @property
    def deviation(self) -> Array:
        """Standard deviation, at least FLOOR."""
        return jnp.maximum(jnp.sqrt(self.variance), FLOOR)

    def down(self, x: Array) -> Array:
        """Normalise: from returns to the critic's unit."""
        return (x - self.mean) / self.deviation

    def up(self, x: Array) -> Array:
        """Denormalise: from the critic's unit to returns."""
        return x * self.deviation + self.mean


class RunningMoments(NamedTuple):
    """Mean and variance of every number that was counted, apart for each owner of parameters."""

    mean: Array  # [G,F]
    variance: Array  # [G,F]
    counted: Array  # [G,F]

    def update(self, x: Array, counts: Array, owner: tuple[int, ...]) -> RunningMoments:
        """Count numbers `x [T,B,N,F]` of agents of these owners, where `counts` is 1, not 0.

        Two passes over the numbers of all devices, then a mixture with those before (Chan et al.
        1983): in float32, squares of numbers far from 0 lose the variance.
        """
        rows = np.asarray(owner)

        def summed(y: Array) -> Array:
            return jnp.zeros_like(self.mean).at[rows].add(y.sum((0, 1)))

        count = total(summed(counts))
        share = counts / jnp.maximum(count, 1.0)[rows]
        rough = total(summed(x * share))
        away = x - rough[rows]
        drift, square = total((summed(away * share), summed(away * away * share)))
        variance = jnp.maximum(square - drift * drift, 0.0)
        whole = self.counted + count
        step = count / jnp.maximum(whole, 1.0)
        mixed = _mixed(self.mean, self.variance, rough + drift, variance, step)
        return RunningMoments(*mixed, whole)

    def down(self, x: Array, owner: tuple[int, ...]) -> Array:
        """Numbers `[…,N,F]` in deviations from their mean.

        A number that hardly moved, by less than it is rounded, has no deviation of its own.
        """
        least = 1e-4 + 1e-5 * jnp.abs(self.mean)
        deviation = jnp.maximum(jnp.sqrt(self.variance), least)
        rows = np.asarray(owner)
        return (x - self.mean[rows]) / deviation[rows]


def nothing_counted(owners: int, size: int) -> RunningMoments:
    """Moments before anything was counted: they leave numbers as they are."""
    shape = (owners, size)
    return RunningMoments(jnp.zeros(shape), jnp.ones(shape), jnp.zeros(shape))


def _mixed(
    mean: Array, variance: Array, new_mean: Array, new_variance: Array, step: Array
) -> tuple[Array, Array]:
    """Mean and variance of a mixture, of which `step` is the new part."""
    away = new_mean - mean
    # within the old and the new numbers, and between their means
    between = (1 - step) * step * away**2
    return mean + step * away, (1 - step) * variance + step * new_variance + between

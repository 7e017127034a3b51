"""Running statistics of returns, by which a critic's targets are normalised."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
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
        any_weight = total(weight.sum())  # 1, or 0 where no agent acted
        windows = jnp.where(any_weight > 0, decay * self.windows + 1, self.windows)
        step = any_weight / jnp.maximum(windows, 1.0)
        away = mean - self.mean
        # variance of a mixture: within the old and the new returns, and between their means
        between = (1 - step) * step * away**2
        return ReturnNormaliser(
            self.mean + step * away, (1 - step) * self.variance + step * variance + between, windows
        )

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

"""Running statistics of returns: the unit in which a critic predicts."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from .reduce import moments, total

FLOOR = 0.01  # least deviation: a game that always pays the same has none


class ReturnNormaliser(NamedTuple):
    """Running mean and variance of the returns, debiased."""

    mean: Array
    variance: Array
    windows: Array  # seen so far, older ones decayed

    def update(self, x: Array, weight: Array, decay: float = 0.99) -> ReturnNormaliser:
        """With a window's returns, under weights that add up to 1; unchanged if all are 0."""
        mean, variance = moments(x, weight)
        any_weight = total(weight.sum())  # 1, or 0 where nobody acted
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
        """At least FLOOR."""
        return jnp.maximum(jnp.sqrt(self.variance), FLOOR)

    def down(self, x: Array) -> Array:
        """Returns in the critic's unit."""
        return (x - self.mean) / self.deviation

    def up(self, x: Array) -> Array:
        """What a critic predicts, as returns."""
        return x * self.deviation + self.mean

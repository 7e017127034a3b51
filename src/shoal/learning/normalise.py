"""Running statistics of returns: the unit in which a critic predicts."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from .reduce import moments, total

# of the deviation that returns are measured in: those of a game that always pays alike have none
FLOOR = 0.01


class ReturnNormaliser(NamedTuple):
    """Running mean and variance of the returns, debiased; the unit the critic predicts in."""

    mean: Array
    variance: Array
    windows: Array  # taken in so far, each decaying the last

    def update(self, x: Array, share: Array, decay: float = 0.99) -> ReturnNormaliser:
        """Take in a window's returns; steps without weight do not count."""
        mean, variance = moments(x, share)
        any_weight = total(share.sum())  # 1, or 0 where nobody acted: such a window changes nothing
        windows = jnp.where(any_weight > 0, decay * self.windows + 1, self.windows)
        step = any_weight / jnp.maximum(windows, 1.0)
        away = mean - self.mean  # both parts vary within themselves, and apart from each other
        between = (1 - step) * step * away**2
        return ReturnNormaliser(
            self.mean + step * away, (1 - step) * self.variance + step * variance + between, windows
        )

    @property
    def deviation(self) -> Array:
        return jnp.maximum(jnp.sqrt(self.variance), FLOOR)

    def down(self, x: Array) -> Array:
        return (x - self.mean) / self.deviation

    def up(self, x: Array) -> Array:
        return x * self.deviation + self.mean

"""Running statistics of each owner's agents, against the same sums in float64."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from helpers import OWN, SAME, on_devices

from shoal.learning.normalise import ReturnNormaliser, RunningMoments, nothing_counted

OWNER = (0, 1, 0)
RNG = np.random.default_rng(0)
# windows of different lengths do not count alike; the second number is far from 0
WINDOWS = [
    (RNG.normal(0, 1, (steps, 4, 3, 2)) * [1, 3] + [2, -1e4]).astype(np.float32)
    for steps in (6, 2, 6, 2)
]
COUNTS = [(RNG.random(x.shape) < 0.7).astype(np.float32) for x in WINDOWS]


@pytest.mark.parametrize("devices", [1, 2])
def test_trap_24_38_only_what_counts_and_beside_a_large_mean(devices: int):
    """All windows on all devices at once, and what does not count is noise."""

    def update(moments: RunningMoments, x: Any, counts: Any) -> RunningMoments:
        return moments.update(x, counts, OWNER)

    # each device has its own half of the games
    games = jax.sharding.PartitionSpec(None, *OWN)
    step = jax.jit(on_devices(update, devices, (SAME, games, games)))
    moments = nothing_counted(2, 2)
    for x, counts in zip(WINDOWS, COUNTS, strict=True):
        moments = step(moments, np.where(counts, x, 99.0), counts)
    for owner, agents in enumerate(([0, 2], [1])):
        for number in range(2):
            pairs = zip(WINDOWS, COUNTS, strict=True)
            seen = np.concatenate(
                [x[:, :, agents, number][c[:, :, agents, number] > 0] for x, c in pairs]
            ).astype(np.float64)
            assert moments.counted[owner, number] == len(seen)
            np.testing.assert_allclose(moments.mean[owner, number], seen.mean(), rtol=1e-6)
            np.testing.assert_allclose(moments.variance[owner, number], seen.var(), rtol=1e-3)


@pytest.mark.parametrize("mean", [-1e4, 1e6])
@pytest.mark.parametrize("size", [3200, 1000, 7])
def test_trap_38_weights_that_do_not_quite_add_up_to_1(mean: float, size: int):
    """In float32 their sum is a little more or less, and the mean's square is large."""
    x = (mean + 3 * RNG.standard_normal(size)).astype(np.float32)
    weight = np.full(size, 1 / size, np.float32)

    def twice() -> Any:
        start = ReturnNormaliser(np.float32(0), np.float32(1), np.float32(0))
        return start.update(x, weight).update(x, weight).deviation

    deviation = jax.jit(on_devices(twice))()
    np.testing.assert_allclose(deviation, x.astype(np.float64).std(), rtol=1e-3)


def test_what_hardly_moved_and_what_was_never_seen():
    """A constant reads 0, however it is rounded; before anything is counted, nothing changes."""
    x = np.full((5, 4, 1, 1), 12345.678, np.float32)

    def constant(moments: RunningMoments) -> Any:
        after = moments.update(x, np.ones_like(x), (0,))
        return after.down(x, (0,))

    start = nothing_counted(1, 1)
    assert np.abs(jax.jit(on_devices(constant))(start)).max() < 0.1
    np.testing.assert_array_equal(start.down(x, (0,)), x)

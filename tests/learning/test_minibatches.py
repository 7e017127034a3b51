"""Minibatches: their weights add up to 1 over all devices, whatever rows each device drew."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from helpers import OWN, on_devices

from shoal.learning.minibatches import UtilityBatch, averaging, weight_sums

ROWS = np.array([[0, 3], [1, 2]])  # of each device, in two minibatches
WEIGHT = np.float32([[1, 1], [1, 0], [0, 0], [1, 1], [0, 1], [0, 0], [0, 0], [1, 0]])


@pytest.mark.parametrize("devices", [1, 2])
def test_trap_09_weights_of_every_minibatch_add_up_to_one(devices: int):
    """An empty minibatch has weights of 0."""
    games = jax.sharding.PartitionSpec(None, *OWN)

    def shares(weight: Any) -> Any:
        batch: Any = UtilityBatch(None, None, weight, None, None)  # type: ignore[arg-type]
        sums = weight_sums(batch, ROWS)
        drawn = [batch._replace(weight=weight[:, rows]) for rows in ROWS]
        return [averaging(one, {"weight": sums["weight"][k]}).weight for k, one in enumerate(drawn)]

    for weight in (WEIGHT, np.zeros_like(WEIGHT)):
        whole = weight[None, : 4 * devices]
        found = jax.jit(on_devices(shares, devices, (games,), games))(whole)
        by_device = whole.reshape(devices, 4, 2)
        for rows, share in zip(ROWS, found, strict=True):
            wanted = by_device[:, rows].reshape(1, -1, 2)
            np.testing.assert_allclose(share, wanted / max(wanted.sum(), 1))

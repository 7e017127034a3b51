"""A Ray cluster of several nodes on this machine, on loopback alone."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

SMALL = 80_000_000  # bytes of a node's object store, the least that Ray takes


@contextlib.contextmanager
def nodes(count: int, cores: int = 1) -> Iterator[Any]:
    """A cluster whose head runs nothing, with so many other nodes."""
    from ray._private import ray_constants
    from ray.cluster_utils import Cluster

    ray_constants.ENABLE_RAY_CLUSTER = False  # loopback is the address, also for its own driver
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    common = {
        "object_store_memory": SMALL,
        "node_ip_address": "127.0.0.1",
        "include_dashboard": False,
    }
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **common})
    del common["include_dashboard"]
    try:
        for _ in range(count):
            cluster.add_node(wait=False, num_cpus=cores, **common)
        cluster.wait_for_nodes(120)
        yield cluster
    finally:
        cluster.shutdown()

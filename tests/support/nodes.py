"""A Ray cluster of several nodes on this machine, on loopback alone."""

from __future__ import annotations

import contextlib
import itertools
import os
import site
import sys
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

STORE = {"object_store_memory": 80_000_000}  # bytes, the least that Ray takes
ADDRESSES = itertools.count(2)
TRIES = 5


def grow(cluster: Any, cores: int = 1) -> str:
    """Add a node, with an address of its own, which is returned: Ray takes nodes of one address for
    one machine."""
    place = f"127.0.0.{next(ADDRESSES)}"
    tried(lambda: cluster.add_node(wait=False, num_cpus=cores, node_ip_address=place, **STORE))
    return place


def tried(start: Callable[[], Any]) -> Any:
    """Start something of Ray, also on a machine too busy for the time that Ray gives it."""
    for _ in range(TRIES - 1):
        with contextlib.suppress(Exception):
            return start()
    return start()


@contextlib.contextmanager
def nodes(count: int, cores: int = 1) -> Iterator[Any]:
    """A cluster whose head runs nothing, with so many other nodes."""
    from ray._private import ray_constants
    from ray.cluster_utils import Cluster

    ray_constants.ENABLE_RAY_CLUSTER = False  # loopback is the address, also for its own driver
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    head = {
        "num_cpus": 0,
        "include_dashboard": False,
        "node_ip_address": "127.0.0.1",
        **STORE,
    }
    cluster = tried(lambda: Cluster(initialize_head=True, head_node_args=head))
    try:
        for _ in range(count):
            grow(cluster, cores)
        cluster.wait_for_nodes(120)
        yield cluster
    finally:
        cluster.shutdown()


def grow_without(package: str, cluster: Any, place: Path) -> str:
    """Add a node whose Python lacks a package; return its address."""
    venv.create(place, symlinks=True)
    (libraries,) = place.glob("lib/python3*/site-packages")
    for entry in Path(site.getsitepackages()[0]).iterdir():
        if not entry.name.startswith(package):
            (libraries / entry.name).symlink_to(entry)
    # a node starts its workers with the Python that started it
    with mock.patch.object(sys, "executable", str(place / "bin" / "python")):
        return grow(cluster)

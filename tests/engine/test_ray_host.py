"""Games on the nodes of a Ray cluster: a run ends as on this machine, and survives a lost node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nodes import grow, grow_without, nodes

import shoal
from shoal.config.config import Config
from shoal.engine.ray_host import RayHosts
from shoal.errors import ShoalError

pytest.importorskip("ray")
pytestmark = pytest.mark.slow

TINY: dict[str, Any] = {
    "games": 4,
    "window": 5,
    "eval_episodes": 2,
    "evaluations": 0,
    "devices": 2,
    "workers": 2,
    "hidden": 4,
    "layers": 1,
    "minibatches": 1,
    "seed": 3,
    "env": {"max_cycles": 7},
    "preset": False,
    "quiet": True,
}
ENV = "pz:mpe2.simple_spread_v3"


def weights(path: Path) -> bytes:
    return (path / "policy" / "weights.safetensors").read_bytes()


class Losing(shoal.Callback):
    """Loses a node after the first steps, and gets another."""

    def __init__(self, cluster: Any):
        self.cluster = cluster
        self.faults: list[str] = []

    def on_iteration(self, run: Any, values: Any) -> None:
        if self.cluster:
            busy = next(iter(self.cluster.worker_nodes))
            grow(self.cluster)
            self.cluster.remove_node(busy, allow_graceful=False)
            self.cluster = None

    def on_faults(self, run: Any, faults: Any, during: str) -> None:
        self.faults += [fault.report for fault in faults]


def test_games_elsewhere_are_learnt_from_as_here(tmp_path: Path) -> None:
    here = shoal.train("ppo", ENV, steps=200, out=str(tmp_path / "here"), **TINY)
    with nodes(2) as cluster:
        there = shoal.train(
            "ppo",
            ENV,
            steps=200,
            out=str(tmp_path / "there"),
            cluster=cluster.address,
            **TINY,
        )
        with pytest.raises(ShoalError, match="3 workers need a core each, and the cluster has 2"):
            shoal.train("ppo", ENV, steps=200, cluster=cluster.address, **TINY | {"workers": 3})
    assert weights(there.path) == weights(here.path)


def test_a_lost_node_costs_episodes_and_the_run_ends(tmp_path: Path) -> None:
    with nodes(2) as cluster:
        losing = Losing(cluster)
        result = shoal.train(
            "ppo",
            ENV,
            steps=20_000,
            out=str(tmp_path),
            cluster=cluster.address,
            callbacks=[losing],
            **TINY,
        )
    assert result.steps >= 20_000
    assert any("was lost" in report for report in losing.faults)


def test_a_node_without_the_environment_is_named(tmp_path: Path) -> None:
    with nodes(1) as cluster:
        lacking = grow_without("mpe2", cluster, tmp_path / "python")
        cluster.wait_for_nodes(120)
        with pytest.raises(ShoalError, match=rf"on node {lacking}: .*mpe2"):
            shoal.train("ppo", ENV, steps=200, out=str(tmp_path), cluster=cluster.address, **TINY)


def test_a_full_object_store_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the store cannot hold would go to a disk of which nothing may be used."""
    monkeypatch.setenv("RAY_local_fs_capacity_threshold", "0.001")
    config = Config.build(ENV, {"agent": ("ppo", {})}, {}, {"workers": 1, "devices": 1})
    with nodes(1) as cluster:
        hosts = RayHosts(cluster.address, config, lambda: False)
        try:
            with pytest.raises(ShoalError, match="object store is full: end what fills it"):
                hosts.share_out([np.ones(50_000_000, np.float32)])
        finally:
            hosts.close()

"""Hosts of games as actors of a Ray cluster.

An actor gets JSON and arrays, and plays with the Shoal that is installed on its node.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

from ..clusters import connect, sent_variables, sentence
from ..config.config import Config
from ..envs.host.watched import Halted
from ..errors import ShoalError
from .remote_loop import HostLost, RemoteLoop, WindowPlayer, played_by_hosts

LOOK_EVERY = 0.2  # seconds between two looks at whether the run is to stop
PLACING = 120.0  # seconds for the cluster to place a host and to open its games


class RayHosts:
    """Makes hosts on the nodes of a cluster, one core each."""

    def __init__(self, address: str, config: Config, halted: Callable[[], bool]):
        self.ray, self.connected = connect(address)
        self.config = played_by_hosts(config)
        self.devices = config.devices
        self.halted = halted
        self._check_size(config.workers)
        variables = sent_variables() | {"NPROC": str(config.devices), "JAX_PLATFORMS": "cpu"}
        self.kind = self.ray.remote(
            num_cpus=1,
            max_restarts=0,
            max_task_retries=0,
            runtime_env={"env_vars": variables},
        )(WindowPlayer)

    def __call__(self, rows: range) -> RayHost:
        return RayHost(self, rows)

    def share_out(self, leaves: list[Any]) -> Any:
        """Put arrays where all nodes can fetch them, once."""
        try:
            return self.ray.put(leaves)
        except self.ray.exceptions.RayError as error:
            raise ShoalError(sentence(error)) from None

    def close(self) -> None:
        """Leave the cluster."""
        if self.connected:
            self.ray.shutdown()

    def _check_size(self, workers: int) -> None:
        cores = int(self.ray.cluster_resources().get("CPU", 0))
        if cores < workers:
            self.close()
            raise ShoalError(
                f"{workers} workers need a core each, and the cluster has {cores}: lower --workers,"
                f" or add nodes"
            )


class RayHost:
    """A host on some node of the cluster."""

    def __init__(self, hosts: RayHosts, rows: range):
        self.hosts = hosts
        self.rows = rows
        self.opening = True  # whether it is not placed yet
        self.restart()

    def restart(self) -> None:
        h = self.hosts
        self.opening = True
        self.actor = h.kind.remote(h.config, (self.rows.start, self.rows.stop), h.devices)

    def ask(self, what: str, *args: Any) -> None:
        self.pending = getattr(self.actor, what).remote(*args)
        self.asked = time.monotonic()

    def answer(self) -> Any:
        ray = self.hosts.ray
        while not ray.wait([self.pending], timeout=LOOK_EVERY)[0]:
            if self.hosts.halted():
                raise Halted
            if self.opening and time.monotonic() - self.asked > PLACING:
                raise HostLost(f"no node has opened them within {PLACING:g} s")
        try:
            answer = ray.get(self.pending)
        except ray.exceptions.RayTaskError as error:
            ours = isinstance(error.cause, ShoalError)
            raise ShoalError(
                f"on {_node(error)}: {error.cause if ours else sentence(error)}"
            ) from None
        except ray.exceptions.RayError as error:
            if "No module named" in str(error):
                raise ShoalError(sentence(error)) from None
            raise HostLost(str(error).strip().splitlines()[0]) from None
        self.opening = False
        return answer

    def close(self) -> None:
        self.hosts.ray.kill(self.actor, no_restart=True)


def _node(error: Exception) -> str:
    """The node whose task failed, by its address, which Ray has in the error's text alone."""
    told = re.search(r"\bip=([\w.:]+)", str(error))
    return f"node {told[1]}" if told else "a node"


class ClusterLoop(RemoteLoop):
    """`RemoteLoop` on a Ray cluster, which it leaves when it closes."""

    hosts: RayHosts

    def close(self) -> None:
        super().close()
        self.hosts.close()


def cluster_loop(address: str, config: Config, halted: Callable[[], bool]) -> ClusterLoop:
    """The loop of a run whose games are played on a cluster."""
    s = config.settings
    hosts = RayHosts(address, config, halted)
    loop = ClusterLoop(
        *(config.game, config.algorithms, s.games, s.window, s.steps, config.devices),
        workers=config.workers,
        patience=s.patience,
        tolerance=s.tolerance,
        halted=halted,
        staleness=s.staleness,
        host=hosts,
        share_out=hosts.share_out,
    )
    loop.hosts = hosts
    return loop

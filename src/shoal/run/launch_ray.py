"""The processes of one run on the nodes of a Ray cluster: a placement group gives each a node.

A node is sent data only: the words of the command, variables, and the folder it was given in.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..clusters import (
    child_variables,
    connect,
    sent_variables,
    sentence,
    sign,
    unseen,
    unsign,
    versions,
    why_incompatible,
)
from ..devices import usable
from ..errors import ShoalError
from ..peers import COMMAND
from .launch import child, free_port, read_from, unnamed_file, variables, watched

PLACING = 120.0  # seconds for the cluster to find a node for each process
STARTING = 120.0  # seconds for the processes on the nodes to answer first
ASK_EVERY = 0.5  # seconds between two questions to a node
SILENCE = 30.0  # seconds without an answer after which a node is taken for lost


def on_cluster(address: str, hosts: int, devices: int, words: list[str], out: Path | None) -> int:
    """Run a command as one process on each of several nodes; return the exit code of the first.

    `devices` are those of all, 0 takes the cores of whole nodes; the first process must see the
    folder `out`."""
    ray, connected = connect(address)
    group: Any = None
    processes: list[NodeProcess] = []
    seen = sign(out.absolute()) if out else None
    command = f"shoal launch --hosts {hosts} --cluster {address}"
    try:
        cores = _cores(ray, hosts, devices)
        group = _placed(ray, hosts, cores)
        processes += [NodeProcess(ray, group, rank, cores) for rank in range(hosts)]
        own = [] if devices else list(range(cores))
        _started(ray, processes, words, own, seen, {COMMAND: command})
        return watched(processes, command)
    finally:
        for one in processes:
            one.close()
        if group:
            ray.util.remove_placement_group(group)
        if out:
            unsign(out.absolute())
        if connected:
            ray.shutdown()


def _cores(ray: Any, hosts: int, devices: int) -> int:
    """Cores that each process gets; refuses a cluster that is too small."""
    alive = [node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"]]
    sizes = sorted(map(int, alive), reverse=True)
    cores = -(-devices // hosts) or min(sizes[:hosts], default=0) or 1
    there = sum(size >= cores for size in sizes)
    if there < hosts:
        raise ShoalError(
            f"{hosts} hosts need a node with {cores} core{'s' * (cores > 1)} each, and the cluster"
            f" has {there}: lower --hosts or --devices, or add nodes"
        )
    return cores


def _placed(ray: Any, hosts: int, cores: int) -> Any:
    """A placement group with a node for each process."""
    from ray.util.placement_group import placement_group

    group = placement_group([{"CPU": cores}] * hosts, strategy="STRICT_SPREAD")
    if not group.wait(PLACING):
        ray.util.remove_placement_group(group)
        raise ShoalError(
            f"the cluster has no {hosts} nodes with {cores} free cores each within {PLACING:g} s:"
            f" wait until others end, or add nodes"
        )
    return group


def _started(
    ray: Any,
    processes: Sequence[NodeProcess],
    words: list[str],
    cores: list[int],
    seen: tuple[str, str] | None,
    more: dict[str, str],
) -> None:
    """Start the process on every node; the first says where the others find it. `more` are
    environment variables for all."""
    here = str(Path.cwd())
    asked = [one.actor.place.remote(versions(), None if k else seen) for k, one in _each(processes)]
    places = _answers(ray, asked)
    for address, wrong in places:
        if wrong:
            raise ShoalError(f"on {address.rpartition(':')[0]}: {wrong}")
    begun = []
    for rank, one in _each(processes):
        one.where = places[rank][0].rpartition(":")[0]
        told = sent_variables() | variables(places[0][0], len(processes), rank) | more
        begun.append(one.actor.start.remote(words, here, told, cores))
    _answers(ray, begun)


def _each(processes: Sequence[NodeProcess]) -> list[tuple[int, NodeProcess]]:
    return list(enumerate(processes))


def _answers(ray: Any, asked: list[Any]) -> list[Any]:
    try:
        return ray.get(asked, timeout=STARTING)
    except ray.exceptions.RayError as error:
        raise ShoalError(sentence(error)) from None


class HostProcess:
    """One process of a run, on its node: an actor of Ray."""

    def place(self, versions: dict[str, str], seen: tuple[str, str] | None) -> tuple[str, str]:
        """An address of this node, and what is wrong with it, if anything."""
        import ray

        host = ray.util.get_node_ip_address()
        wrong = why_incompatible(versions) or (unseen(*seen) if seen else "")
        return f"{host}:{free_port(host)}", wrong

    def start(self, words: list[str], folder: str, told: dict[str, str], cores: list[int]) -> None:
        """Start the command; it ends with this actor."""
        own = [core for core, _ in zip(usable(), cores, strict=False)]
        here = folder if Path(folder).is_dir() else None
        self.output = unnamed_file()
        self.popen = child(words, own, child_variables(told), self.output, here)
        self.read = 0

    def look(self) -> tuple[str, int | None]:
        """What it has printed since the last look, and its exit code, once it has ended."""
        code = self.popen.poll()
        new = read_from(self.output, self.read)
        self.read += len(new)
        return new.decode(errors="replace"), code

    def signal(self, number: int) -> None:
        """Send a signal to it."""
        self.popen.send_signal(number)


class NodeProcess:
    """A process on a node, as this machine sees it."""

    def __init__(self, ray: Any, group: Any, rank: int, cores: int):
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        kind = ray.remote(max_restarts=0, max_task_retries=0)(HostProcess)
        place = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=rank)
        self.actor = kind.options(num_cpus=cores, scheduling_strategy=place).remote()
        self.ray = ray
        self.rank = rank
        self.where = ""
        self.code: int | None = None
        self.pending: Any = None
        self.asked = 0.0
        self.held = ""  # what was not shown of what it printed
        self.signals: list[int] = []  # still to be sent: not from within a signal handler

    def poll(self) -> int | None:
        """Its exit code; that of a lost node is that of a killed process. Shows what the first
        printed."""
        while self.signals and self.code is None:
            self.actor.signal.remote(self.signals.pop(0))
        try:
            if self.code is None:
                self._ask()
        except self.ray.exceptions.RayError:
            self._lose()
        return self.code

    def _ask(self) -> None:
        silent = time.monotonic() - self.asked
        if self.pending is None:
            if silent > ASK_EVERY:
                self.pending = self.actor.look.remote()
                self.asked = time.monotonic()
        elif self.ray.wait([self.pending], timeout=0)[0]:
            printed, self.code = self.ray.get(self.pending)
            self.pending = None
            if self.rank:
                self.held += printed
            else:
                print(printed, end="", flush=True)
        elif silent > SILENCE:
            self._lose()

    def _lose(self) -> None:
        self.code = -signal.SIGKILL
        print(f"process {self.rank} was lost with its worker on {self.where}", flush=True)

    def send_signal(self, sig: int) -> None:
        """Send a signal, soon."""
        self.signals.append(sig)

    def said(self) -> str:
        return self.held

    def close(self) -> None:
        """End the actor, and with it the process."""
        with contextlib.suppress(Exception):  # it is gone, or the whole cluster is
            self.ray.kill(self.actor, no_restart=True)

"""Runs on the nodes of a Ray cluster: Ray places them and tells which are lost.

A node is sent data only: a run's folder, the words of its command, names of what it may run. It
starts the same child process as this machine would.
"""

from __future__ import annotations

import contextlib
import signal
import time
from pathlib import Path
from typing import Any, cast

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
from ..config.campaign import Job
from ..errors import ShoalError
from ..store.places import exists, local, url_of
from ..store.remote import fetch
from .progress import Follower
from .runner import Runner, Status, await_release

ASK_EVERY = 0.5  # seconds between two questions to a node
SILENCE = 30.0  # seconds without an answer after which a node is taken for lost; Ray may be faster
COUNT_EVERY = 2.0  # seconds between two counts of the nodes
NOBODY = 60.0  # seconds to wait for a node, once all are lost


class Cluster:
    """Engine that runs jobs on the nodes of a Ray cluster."""

    def __init__(self, address: str, at_once: int, cores: int):
        self.ray, self.connected = connect(address)
        self.at_once = at_once
        self.cores = cores
        self.runs: list[NodeRun] = []
        self.signs: dict[Path, tuple[str, str]] = {}
        self.nodes: dict[str, str] = {}  # names of those that live
        self.places = 0
        self.counted = -COUNT_EVERY
        self.manned = time.monotonic()  # last time that there was a node
        self.kind = self.ray.remote(max_restarts=0, max_task_retries=0)(NodeRunner)
        try:
            self._count()
            self._check_size()
        except BaseException:
            self.close()
            raise

    def free(self, job: Job) -> bool:
        """Whether the nodes have cores for one more run."""
        if time.monotonic() - self.counted > COUNT_EVERY:
            self._count()
        places = min(self.places, self.at_once or self.places)
        if self.places:
            self.manned = time.monotonic()
        elif time.monotonic() - self.manned > NOBODY:
            raise ShoalError(
                f"the cluster has had no node with {self.cores} cores for {NOBODY:g} s: start"
                " nodes, then the same command, or shoal resume, goes on"
            )
        return len(self.runs) < places

    def start(self, job: Job) -> NodeRun:
        """Let Ray place a run on a node with the cores it asks for."""
        url = url_of(job.path)
        seen = ("", "") if url else self._sign(job.path.parent.absolute())
        here = str(Path.cwd())
        actor = self.kind.options(num_cpus=job.cores).remote(
            job._replace(path=job.path.absolute()), [], sent_variables()
        )
        begun = actor.begin.remote(url, seen, here, versions())
        run = NodeRun(self.ray, url, actor, begun, self.nodes)
        self.runs.append(run)
        return run

    def ended(self, run: NodeRun) -> None:
        """End the actor of a run, and all that it started."""
        self.runs.remove(run)
        run.kill()
        if run.url and exists(run.url):
            fetch(run.url)

    def close(self) -> None:
        """End what still runs, and leave the cluster."""
        for run in self.runs:
            run.kill()
        for folder in self.signs:
            unsign(folder)
        if self.connected:
            self.ray.shutdown()

    def _count(self) -> None:
        """Count the runs that the nodes have room for."""
        try:
            alive = [node for node in self.ray.nodes() if node["Alive"]]
        except Exception as error:  # Ray has several, by what is lost
            why = (str(error).splitlines() or [type(error).__name__])[0]
            raise ShoalError(
                f"the cluster is gone ({why}): what was trained is saved, and the same command, or"
                " shoal resume, goes on"
            ) from None
        self.sizes = [int(node["Resources"].get("CPU", 0)) for node in alive]
        self.places = sum(size // self.cores for size in self.sizes)
        names = [node.get("NodeName") or node["NodeManagerAddress"] for node in alive]
        for node, name in zip(alive, names, strict=True):
            alone = names.count(name) == 1
            self.nodes[node["NodeID"]] = name if alone else f"{name}/{node['NodeID'][:4]}"
        self.counted = time.monotonic()

    def _check_size(self) -> None:
        if self.places:
            return
        raise ShoalError(
            f"a run asks for {self.cores} cores, and the largest node of the cluster has"
            f" {max(self.sizes, default=0)}: lower --devices or --workers, or add a node"
        )

    def _sign(self, folder: Path) -> tuple[str, str]:
        """A file, and its content, that a node must see beside the run's folder."""
        if folder not in self.signs:
            self.signs[folder] = sign(folder)
        return self.signs[folder]


class NodeRunner(Runner):
    """A `Runner` on a node: an actor of Ray."""

    def begin(
        self, url: str, seen: tuple[str, str], folder: str, versions: dict[str, str]
    ) -> tuple[str, str]:
        """Start the job; return the node's id and what was wrong, if anything."""
        import ray

        node = ray.get_runtime_context().get_node_id()
        wrong = why_incompatible(versions) or ("" if url else unseen(*seen))
        self.variables = child_variables(self.variables)
        self.folder = folder if Path(folder).is_dir() else None
        if not wrong:
            try:
                if url:
                    self._stage(url)
                await_release(self.job.path)
                self.start()
            except ShoalError as error:
                wrong = str(error)
        return node, wrong

    def _stage(self, url: str) -> None:
        """Use this node's own folder for a run elsewhere, with what there is of it."""
        self.job = self.job._replace(path=local(url))
        self.follower = Follower(self.job.path)
        if exists(url):
            fetch(url)


class NodeRun:
    """A run on a node, as this machine sees it."""

    def __init__(self, ray: Any, url: str, actor: Any, begun: Any, nodes: dict[str, str]):
        self.ray = ray
        self.url = url  # that its folder is mirrored to, if any
        self.actor = actor
        self.nodes = nodes
        self.pending = begun  # the answer that is waited for
        self.asked = time.monotonic()
        self.heard = 0.0  # time of the last answer
        self.last = Status()
        self.signals: list[int] = []  # still to be sent: not from within a signal handler
        self.told = False  # whether one was sent

    def status(self) -> Status:
        """The newest that is known; asks again from time to time."""
        self._send()
        try:
            if self.pending is None:
                if time.monotonic() - self.asked > ASK_EVERY:
                    self.pending = self.actor.status.remote()
                    self.asked = time.monotonic()
            elif self.ray.wait([self.pending], timeout=0)[0]:
                self._hear(self.ray.get(self.pending))
            elif self.heard and time.monotonic() - max(self.heard, self.asked) > SILENCE:
                self.last = self.last._replace(lost=True)
            elif self.told and not self.heard:  # no node has taken it yet
                self.last = self.last._replace(code=-int(signal.SIGTERM))
        except self.ray.exceptions.RayError as error:
            self._fail(error)
        return self.last

    def signal(self, number: int) -> None:
        """Send a signal, soon."""
        self.signals.append(number)

    def kill(self) -> None:
        """End the actor, and with it what it started."""
        with contextlib.suppress(Exception):  # it is gone, or the whole cluster is
            self.ray.kill(self.actor, no_restart=True)

    def _send(self) -> None:
        while self.signals:
            self.told = True
            self.actor.signal.remote(self.signals.pop(0))

    def _hear(self, answer: Any) -> None:
        """Take an answer: first of `begin`, then of `status`."""
        first = not self.heard
        self.heard = time.monotonic()
        self.pending = None
        if first:
            node, wrong = cast(tuple[str, str], answer)
            place = self.nodes.get(node) or node[:8]
            self.last = Status(place, code=2 if wrong else None, words=wrong)
            return
        killed = answer.code == -signal.SIGKILL and not self.told
        self.last = answer._replace(where=self.last.where, lost=killed)

    def _fail(self, error: Exception) -> None:
        """Take an error of Ray: a lost worker or node, or one that cannot run anything."""
        died = isinstance(error, self.ray.exceptions.RayActorError)
        if died and "No module named" not in str(error):
            self.last = self.last._replace(lost=True)
        else:
            self.last = self.last._replace(code=1, words=sentence(error))

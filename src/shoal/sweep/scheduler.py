"""Several runs at once, wherever an engine puts them: in processes of this machine
(`processes.py`) or on the nodes of a cluster (`cluster.py`).

Finished runs are skipped and interrupted ones resumed, so the same call completes an earlier one.
A run that fails does not affect the others; one whose node is lost goes on elsewhere, from its
newest checkpoint.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from ..config.campaign import Job
from ..config.settings import LOCAL
from ..devices import usable
from ..errors import ShoalError
from ..monitor.console import tell
from ..run.signals import install, restore
from ..store.folder import finished
from .cluster import Cluster
from .live_table import LiveTable
from .processes import Processes, core_slots
from .progress import FAILED, FINISHED, STOPPED, Outcome
from .runner import Status

LOOK_EVERY = 0.2  # seconds
MOST_LOSSES = 10  # losses of a run in a row, without a step forward between them
# exit codes of a child that stopped because we asked it to
STOPS = {
    128 + signal.SIGINT,
    128 + signal.SIGTERM,
    -signal.SIGINT,
    -signal.SIGTERM,
    -signal.SIGKILL,
}


class Run(Protocol):
    """A run that an engine has started."""

    def status(self) -> Status: ...
    def signal(self, number: int) -> None: ...


class Engine(Protocol):
    """Where runs are."""

    def free(self, job: Job) -> bool:
        """Whether a job can be started now."""
        ...

    def start(self, job: Job) -> Any:
        """Start what is left of a job, as a `Run`."""
        ...

    def ended(self, run: Any) -> None:
        """Free the place of a run that has ended."""
        ...

    def close(self) -> None:
        """End all that still runs."""
        ...


def engine(cluster: str, at_once: int, jobs: Sequence[Job]) -> Engine:
    """The engine of a place: this machine, `at_once` runs at a time (0: one per core), or a
    cluster (0: as many as its nodes have cores for)."""
    cores = max((job.cores for job in jobs), default=1)
    if cluster == LOCAL:
        return Processes(core_slots(at_once or max(len(usable()) // cores, 1), len(jobs)))
    return Cluster(cluster, at_once, cores)


def work(
    jobs: Sequence[Job], at_once: int = 0, quiet: bool = False, cluster: str = LOCAL
) -> dict[Path, Outcome]:
    """Run all unfinished jobs.

    Ctrl-C and SIGTERM end them cleanly."""
    paths = [job.path for job in jobs]
    if len({path.absolute() for path in paths}) < len(paths):
        raise ShoalError("two jobs have the same run folder: rename one")
    with Scheduler(engine(cluster, at_once, jobs), quiet) as scheduler:
        scheduler.waiting += jobs
        with LiveTable(paths, quiet) as table:
            while scheduler.busy:
                scheduler.look()
                table.show(scheduler.statuses, scheduler.outcomes)
                time.sleep(LOOK_EVERY * bool(scheduler.running))
            table.show(scheduler.statuses, scheduler.outcomes)
    return {path: scheduler.outcomes[path] for path in paths}


@dataclass
class Scheduler:
    """Keeps an engine busy with jobs, and says how each ended."""

    engine: Engine
    quiet: bool = False
    waiting: list[Job] = field(default_factory=list)
    running: dict[Path, tuple[Job, Run]] = field(default_factory=dict)
    statuses: dict[Path, Status] = field(default_factory=dict)  # of those that run
    outcomes: dict[Path, Outcome] = field(default_factory=dict)
    halted: set[Path] = field(default_factory=set)  # runs that were asked to stop
    losses: dict[Path, tuple[int, int]] = field(default_factory=dict)  # steps there, how often
    signals: int = 0  # number of requests to stop
    signal: int = 0  # the last of them

    def __post_init__(self) -> None:
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Scheduler:
        self.before = install(self._stop)
        return self

    def __exit__(self, *_: Any) -> None:
        self.engine.close()
        restore(self.before)

    @property
    def busy(self) -> bool:
        return bool(self.running or (self.waiting and not self.signals))

    def look(self) -> None:
        """Record runs that have ended, and start the next jobs."""
        for path, (job, run) in list(self.running.items()):
            status = run.status()
            self.statuses[path] = status
            if status.code is None and not status.lost:
                continue
            del self.running[path]
            del self.statuses[path]
            self.engine.ended(run)
            if status.lost and not self.signals and path not in self.halted:
                self._lose(job, status)
            else:
                self.outcomes[path] = self._outcome(path, status)
        while self.waiting and not self.signals and self.engine.free(self.waiting[0]):
            self._begin(self.waiting.pop(0))
        if self.signals:
            for job in self.waiting:
                self.outcomes[job.path] = _unbegun(job, self.signal)

    def halt(self, path: Path) -> None:
        """Ask one run to stop, which saves it."""
        if path in self.running and path not in self.halted:
            self.halted.add(path)
            self.running[path][1].signal(signal.SIGTERM)

    def _begin(self, job: Job) -> None:
        try:
            if finished(job.path, job.steps):
                self.outcomes[job.path] = Outcome(FINISHED)
                return
            run = self.engine.start(job)
        except ShoalError as error:
            self.outcomes[job.path] = Outcome(FAILED, str(error), error.exit_code)
            return
        self.running[job.path] = (job, run)
        self.statuses[job.path] = Status()
        if self.signals:  # it arrived while the run was started
            run.signal(self.signal)

    def _lose(self, job: Job, status: Status) -> None:
        """Let a run whose node or worker is gone go on elsewhere."""
        steps, count = self.losses.get(job.path, (-1, 0))
        count = count + 1 if status.progress.steps <= steps else 1
        self.losses[job.path] = (max(status.progress.steps, steps), count)
        if count >= MOST_LOSSES:
            why = f"it was lost {count} times at {steps:,} steps, last on {status.where}"
            self.outcomes[job.path] = Outcome(FAILED, status.words or why, 1)
            return
        if not self.quiet:
            tell(f"{job.path.name}: lost on {status.where or 'its node'}, goes on elsewhere")
        self.waiting.insert(0, job)

    def _outcome(self, path: Path, status: Status) -> Outcome:
        code = status.code or 0
        if status.finished:
            return Outcome(FINISHED)
        if (self.signals or path in self.halted) and (status.lost or code in STOPS):
            return Outcome(STOPPED, code=128 + (self.signal or signal.SIGTERM))
        why = f"it was ended by signal {-code}" if code < 0 else f"it ended with code {code}"
        place = f"on {status.where}: " if status.where else ""
        return Outcome(FAILED, place + (status.words or why), code)

    def _stop(self, number: int, frame: Any) -> None:
        """Forward a signal: the first ends runs cleanly, the second at once, the third kills
        them."""
        self.signals = self.signals + 1
        self.signal = number
        for _, run in list(self.running.values()):
            run.signal(number if self.signals < 3 else signal.SIGKILL)


def _unbegun(job: Job, number: int) -> Outcome:
    """The outcome of a job that was still waiting when a signal came."""
    if finished(job.path, job.steps):
        return Outcome(FINISHED)
    return Outcome(STOPPED, code=128 + number)

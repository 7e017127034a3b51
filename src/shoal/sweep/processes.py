"""Several runs at once, each in a child process on its own cores.

Finished runs are skipped and interrupted ones resumed, so the same call completes an earlier one.
A process that fails does not affect the others; none outlives its parent.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..config.campaign import Job
from ..config.trust import Trust
from ..devices import shares, usable
from ..errors import ShoalError
from ..run.signals import install, restore
from ..store import checkpoint, folder
from ..store.folder import console, finished, last_words
from .live_table import LiveTable
from .progress import FAILED, FINISHED, STOPPED, Outcome

LOOK_EVERY = 0.2  # seconds
# exit codes of a child that stopped because we asked it to
STOPS = {
    128 + signal.SIGINT,
    128 + signal.SIGTERM,
    -signal.SIGINT,
    -signal.SIGTERM,
    -signal.SIGKILL,
}


def work(jobs: Sequence[Job], at_once: int = 0, quiet: bool = False) -> dict[Path, Outcome]:
    """Run all unfinished jobs, `at_once` at a time (0: one per core).

    Ctrl-C and SIGTERM end them cleanly."""
    paths = [job.path for job in jobs]
    if len({path.absolute() for path in paths}) < len(paths):
        raise ShoalError("two jobs have the same run folder: rename one")
    scheduler = Scheduler(jobs, core_slots(at_once, len(jobs)))
    with scheduler, LiveTable(paths, quiet) as table:
        while scheduler.busy:
            scheduler.look()
            table.show(scheduler.running, scheduler.outcomes)
            time.sleep(LOOK_EVERY * bool(scheduler.running))
        table.show(scheduler.running, scheduler.outcomes)
    return {path: scheduler.outcomes[path] for path in paths}


def core_slots(at_once: int, jobs: int) -> list[list[int]]:
    """Cores of each slot in which a job can run; together they are all that this process may
    use."""
    return shares(max(min(at_once or len(usable()), jobs), 1))


@dataclass
class Scheduler:
    """Runs jobs in child processes, one per slot of cores."""

    jobs: Sequence[Job]
    slots: list[list[int]]  # cores of each
    running: dict[Path, Process] = field(default_factory=dict)
    outcomes: dict[Path, Outcome] = field(default_factory=dict)
    signals: int = 0  # number of requests to stop
    signal: int = 0  # the last of them

    def __post_init__(self) -> None:
        self.waiting = list(self.jobs)
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Scheduler:
        self.before = install(self._stop)
        return self

    def __exit__(self, *_: Any) -> None:
        for process in self.running.values():  # only after an error in this process
            process.popen.kill()
            process.popen.wait()
        restore(self.before)

    @property
    def busy(self) -> bool:
        return bool(self.running or (self.waiting and not self.signals))

    def look(self) -> None:
        """Record children that have ended, and start the next jobs."""
        for path, process in list(self.running.items()):
            code = process.popen.poll()
            if code is not None:
                self.outcomes[path] = self._outcome(path, code)
                del self.running[path]
        while self.waiting and len(self.running) < len(self.slots) and not self.signals:
            self._begin(self.waiting.pop(0))
        if self.signals:
            for job in self.waiting:
                done = finished(job.path, job.steps)
                self.outcomes[job.path] = (
                    Outcome(FINISHED) if done else Outcome(STOPPED, code=128 + self.signal)
                )

    def _begin(self, job: Job) -> None:
        try:
            words = command(job)
        except ShoalError as error:
            self.outcomes[job.path] = Outcome(FAILED, str(error), error.exit_code)
            return
        if not words:
            self.outcomes[job.path] = Outcome(FINISHED)
            return
        taken = {process.slot for process in self.running.values()}
        slot = next(slot for slot in range(len(self.slots)) if slot not in taken)
        process = Process(_start(words, self.slots[slot], console(job.path), job.trust), slot)
        self.running[job.path] = process
        if self.signals:  # it arrived while the process was started
            process.popen.send_signal(self.signal)

    def _outcome(self, path: Path, code: int) -> Outcome:
        if self.signals and code in STOPS:
            return Outcome(STOPPED, code=128 + self.signal)
        if code or not finished(path):
            why = f"it was ended by signal {-code}" if code < 0 else f"it ended with code {code}"
            return Outcome(FAILED, last_words(path) or why, code)
        return Outcome(FINISHED)

    def _stop(self, number: int, frame: Any) -> None:
        """Forward a signal: the first ends runs cleanly, the second at once, the third kills
        them."""
        self.signals = self.signals + 1
        self.signal = number
        for process in list(self.running.values()):
            process.popen.send_signal(number if self.signals < 3 else signal.SIGKILL)


class Process(NamedTuple):
    """A child process and its slot."""

    popen: subprocess.Popen
    slot: int


def command(job: Job) -> list[str]:
    """Arguments of `shoal` for what is left of a job; empty if it is finished.

    Removes a run that must begin anew."""
    path = job.path
    if finished(path, job.steps):
        return []
    if any(checkpoint.places(path)):
        further = job.steps and folder.totals(path)[0] != job.steps
        return ["resume", str(path), *(["--steps", str(job.steps)] if further else [])]
    clear(path)
    return ["train", *job.args, "--out", str(path.parent), "--name", path.name]


def clear(path: Path) -> None:
    """Remove a run that ended before anything was saved; never remove anything else."""
    if not path.exists():
        return
    names = {entry.name for entry in path.iterdir()} if path.is_dir() else {""}
    ours = not names or any(name.startswith(folder.CONFIG) for name in names)
    if not ours or folder.POLICY in names or finished(path):
        raise ShoalError(
            f"{path} is in the way, and not a run that was interrupted: move it, or choose another"
            " name"
        )
    with folder.locked(path):
        shutil.rmtree(path)


def _start(words: list[str], cores: list[int], output: Path, trust: Trust) -> subprocess.Popen:
    """Start a child process that ends with this one and gets Ctrl-C only from it."""
    output.parent.mkdir(parents=True, exist_ok=True)
    about = json.dumps({"parent": os.getpid(), "cores": cores, "trust": sorted(trust.named)})
    with output.open("a") as said:
        return subprocess.Popen(
            # -P: do not import from the current folder
            [sys.executable, "-P", "-m", "shoal.cli.child", about, *words],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            env=_variables(),
        )


def _variables() -> dict[str, str]:
    """Environment variables of a child; without NPROC, as each run sets its own number of XLA
    threads."""
    inherited = {name: value for name, value in os.environ.items() if name != "NPROC"}
    return (
        {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        | inherited
        | {"PYTHONPATH": os.pathsep.join(sys.path)}
    )

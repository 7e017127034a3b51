"""Several runs side by side: each in a process of its own, on its own share of the cores, all on
one screen.

A finished run is not run again, an interrupted one is resumed, so the same call ends what an
earlier one began. A process that fails leaves the others alone; none outlives the one that started
it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from ..config.campaign import Job
from ..config.trust import Trust
from ..devices import usable
from ..errors import ShoalError
from ..store import checkpoint, folder
from ..store.folder import console, finished, last_words
from .live_table import LiveTable
from .progress import FAILED, FINISHED, STOPPED, Outcome

LOOK_EVERY = 0.2  # seconds
# once asked to
STOPS = {
    128 + signal.SIGINT,
    128 + signal.SIGTERM,
    -signal.SIGINT,
    -signal.SIGTERM,
    -signal.SIGKILL,
}


def work(jobs: Sequence[Job], at_once: int = 0, quiet: bool = False) -> dict[Path, Outcome]:
    """Run all that are not finished, so many at once (0: one on each core). Ctrl-C and SIGTERM end
    them cleanly."""
    paths = [job.path for job in jobs]
    if len({path.absolute() for path in paths}) < len(paths):
        raise ShoalError("two jobs have the same run folder")
    crew = Scheduler(jobs, shares(at_once, len(jobs)))
    with crew, LiveTable(paths, quiet) as board:
        while crew.busy:
            crew.look()
            board.show(crew.running, crew.outcomes)
            time.sleep(LOOK_EVERY * bool(crew.running))
        board.show(crew.running, crew.outcomes)
    return {path: crew.outcomes[path] for path in paths}


def shares(at_once: int, jobs: int) -> list[list[int]]:
    """The cores of each place where a job can run: together all that this process may use."""
    cores = usable()
    places = max(min(at_once or len(cores), jobs), 1)
    return [cores[place::places] or [cores[place % len(cores)]] for place in range(places)]


@dataclass
class Scheduler:
    """The processes that work, and who is still to begin."""

    jobs: Sequence[Job]
    shares: list[list[int]]
    running: dict[Path, Process] = field(default_factory=dict)
    outcomes: dict[Path, Outcome] = field(default_factory=dict)
    signals: int = 0  # how often it was asked to stop
    signal: int = 0  # and how, the last time

    def __post_init__(self) -> None:
        self.waiting = list(self.jobs)
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Scheduler:
        if threading.current_thread() is threading.main_thread():
            self.before = {
                number: signal.signal(number, self._stop)
                for number in (signal.SIGINT, signal.SIGTERM)
            }
        return self

    def __exit__(self, *_: Any) -> None:
        for process in self.running.values():  # only if something went wrong here
            process.popen.kill()
            process.popen.wait()
        for number, handler in self.before.items():
            signal.signal(number, handler)

    @property
    def busy(self) -> bool:
        return bool(self.running or (self.waiting and not self.signals))

    def look(self) -> None:
        """Note who has ended, and let the next begin."""
        for path, process in list(self.running.items()):
            code = process.popen.poll()
            if code is not None:
                self.outcomes[path] = self._outcome(path, code)
                del self.running[path]
        while self.waiting and len(self.running) < len(self.shares) and not self.signals:
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
        taken = {process.place for process in self.running.values()}
        place = next(place for place in range(len(self.shares)) if place not in taken)
        process = Process(_start(words, self.shares[place], console(job.path), job.trust), place)
        self.running[job.path] = process
        if self.signals:  # it came while the process was being started
            process.popen.send_signal(self.signal)

    def _outcome(self, path: Path, code: int) -> Outcome:
        if self.signals and code in STOPS:
            return Outcome(STOPPED, code=128 + self.signal)
        if code or not finished(path):
            why = f"it was ended by signal {-code}" if code < 0 else f"it ended with code {code}"
            return Outcome(FAILED, last_words(path) or why, code)
        return Outcome(FINISHED)

    def _stop(self, number: int, frame: Any) -> None:
        """Pass it on: a run ends cleanly at the first, at once at the second; the third leaves
        nobody the choice."""
        self.signals = self.signals + 1
        self.signal = number
        for process in list(self.running.values()):
            process.popen.send_signal(number if self.signals < 3 else signal.SIGKILL)


class Process(NamedTuple):
    popen: subprocess.Popen
    place: int


def command(job: Job) -> list[str]:
    """What is left to do of a job, as words after `shoal`; nothing if it is finished. Makes room to
    begin anew."""
    path = job.path
    if finished(path, job.steps):
        return []
    if any(checkpoint.places(path)):
        further = job.steps and folder.totals(path)[0] != job.steps
        return ["resume", str(path), *(["--steps", str(job.steps)] if further else [])]
    clear(path)
    return ["train", *job.args, "--out", str(path.parent), "--name", path.name]


def clear(path: Path) -> None:
    """Remove a run that ended before anything of it was saved; never anything else."""
    if not path.exists():
        return
    names = {entry.name for entry in path.iterdir()} if path.is_dir() else {""}
    ours = not names or any(name.startswith(folder.CONFIG) for name in names)
    if not ours or folder.POLICY in names or finished(path):
        raise ShoalError(
            f"{path} is in the way, and not a run that was interrupted: move it,"
            f" or choose another name"
        )
    with folder.locked(path):
        shutil.rmtree(path)


def _start(words: list[str], cores: list[int], output: Path, trust: Trust) -> subprocess.Popen:
    """A process of our own that ends when we do, and hears of Ctrl-C from us alone."""
    output.parent.mkdir(parents=True, exist_ok=True)
    about = json.dumps({"parent": os.getpid(), "cores": cores, "trust": sorted(trust.named)})
    with output.open("a") as said:
        return subprocess.Popen(
            # -P: no import from this folder
            [sys.executable, "-P", "-m", "shoal.cli.child", about, *words],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            env=_surroundings(),
        )


def _surroundings() -> dict[str, str]:
    """The environment of a process; how many threads XLA has is for each run to say, as if it were
    alone."""
    inherited = {name: value for name, value in os.environ.items() if name != "NPROC"}
    return (
        {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
        | inherited
        | {"PYTHONPATH": os.pathsep.join(sys.path)}
    )

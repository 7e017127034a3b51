"""One run in a child process: started, watched and signalled; on this machine or, as an actor, on a
node of a cluster.

A finished run is left alone and an interrupted one resumed. The child ends with the process that
started it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from ..config.campaign import Job
from ..errors import ShoalError
from ..store import checkpoint, folder
from ..store.folder import console, finished, last_words
from ..store.places import word_of
from .progress import Follower, Progress

RELEASE = 60.0  # seconds to wait for the lock of a run whose last process is about to end


class Status(NamedTuple):
    """What is known of a run."""

    where: str = ""  # node that it runs on; empty for this machine
    progress: Progress = Progress()
    code: int | None = None  # exit code, once its process has ended
    finished: bool = False  # whether it was trained to its end
    words: str = ""  # last line of its output, once it has ended
    lost: bool = False  # whether its node or worker is gone


class Runner:
    """The process of one job."""

    def __init__(self, job: Job, cores: list[int], variables: dict[str, str]):
        self.job = job
        self.cores = cores  # empty: all
        self.variables = variables
        self.follower = Follower(job.path)
        self.folder: str | None = None  # to be in; None: that of this process
        self.popen: subprocess.Popen | None = None

    def start(self) -> None:
        """Start what is left of the job; do nothing if that is nothing."""
        words = command(self.job)
        if words:
            self.popen = self._child(words)

    def _child(self, words: list[str]) -> subprocess.Popen:
        """A child process that ends with this one and gets Ctrl-C only from it."""
        output = console(self.job.path)
        output.parent.mkdir(parents=True, exist_ok=True)
        trust = sorted(self.job.trust.named)
        about = json.dumps({"parent": os.getpid(), "cores": self.cores, "trust": trust})
        with output.open("a") as said:
            return subprocess.Popen(
                # -P: do not import from the current folder
                [sys.executable, "-P", "-m", "shoal.cli.child", about, *words],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,
                env=self.variables,
                cwd=self.folder,
            )

    def status(self) -> Status:
        """How far the run is, or how it ended."""
        progress = self.follower.progress()
        path = self.job.path
        code = self.popen.poll() if self.popen else 0
        if code is None:
            return Status(progress=progress)
        done = not code and finished(path)
        return Status("", progress, code, done, "" if done else last_words(path))

    def signal(self, number: int) -> None:
        """Send a signal to the process."""
        if self.popen:
            self.popen.send_signal(number)

    def close(self) -> None:
        """Kill the process, if it still runs."""
        if self.popen:
            self.popen.kill()
            self.popen.wait()


def command(job: Job) -> list[str]:
    """Arguments of `shoal` for what is left of a job; empty if it is finished.

    Removes a run that must begin anew."""
    path = job.path
    if finished(path, job.steps):
        return []
    if any(checkpoint.places(path)):
        further = job.steps and folder.totals(path)[0] != job.steps
        return ["resume", word_of(path), *(["--steps", str(job.steps)] if further else [])]
    clear(path)
    return ["train", *job.args, "--out", word_of(path.parent), "--name", path.name]


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


def await_release(path: Path, seconds: float = RELEASE) -> None:
    """Wait until no process trains a run, but at most `seconds`; the lock then refuses it."""
    until = time.monotonic() + seconds
    while path.is_dir() and time.monotonic() < until:
        with contextlib.suppress(ShoalError), folder.locked(path):
            return
        time.sleep(0.5)

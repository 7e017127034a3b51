"""What the page can do to a run: ask it to stop, resume it, evaluate it, in processes of their
own."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from ..config.trust import FLAG
from ..errors import ShoalError, printable
from ..monitor import stop_file
from ..store import folder
from .index import LIVE, Run

AT_ONCE = 4  # processes that the page has started and that still run
KEPT = 5  # finished evaluations that a run's page shows
EPISODES = 100


@dataclass
class Job:
    """A command that was started for a run."""

    words: str
    process: subprocess.Popen[str]
    said: str = ""  # its output, once it has ended


class Jobs:
    """The commands started from the page, by run."""

    def __init__(self, trusted: bool = False):
        self.more = [FLAG] if trusted else []
        self.jobs: dict[str, list[Job]] = {}
        self.lock = threading.Lock()

    def do(self, word: str, run: Run) -> None:
        """Do what a button says; refuses what does not fit the run's state."""
        going = run.status in LIVE
        if word == "stop" and going:
            stop_file.request(run.path)
        elif word == "resume" and run.status in ("stopped", "dead", "failed"):
            self._start(run, ["resume", str(run.path)], folder.console(run.path))
        elif word == "evaluate" and run.config and not going:
            self._start(run, ["evaluate", str(run.path), "--episodes", str(EPISODES)])
        else:
            raise ShoalError(f"a run that is {run.status} cannot be asked to {word}")

    def _start(self, run: Run, args: list[str], log: Path | None = None) -> None:
        """Start a command; its output goes to `log`, or to the page."""
        with self.lock:
            running = [job for jobs in self.jobs.values() for job in jobs if _runs(job)]
            if len(running) >= AT_ONCE:
                raise ShoalError(
                    f"{len(running)} commands started here still run: wait until one has ended"
                )
            if log is not None and log.is_symlink():
                raise ShoalError(f"{log.name} is a link: remove it")
            command = [sys.executable, "-m", "shoal", *args, *self.more]
            with open(log or "/dev/null", "a") as file:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=file if log else subprocess.PIPE,
                    stderr=file if log else subprocess.STDOUT,
                    text=True,
                    start_new_session=True,  # it outlives this server
                )
            job = Job(args[0], process)
            mine = self.jobs.setdefault(run.slug, [])
            mine.append(job)
            del mine[:-KEPT]
        threading.Thread(target=_attend, args=(job,), daemon=True).start()

    def told(self, run: Run) -> list[str]:
        """A line for each command of a run, the newest first."""
        return [_sentence(job) for job in reversed(self.jobs.get(run.slug, []))]


def _attend(job: Job) -> None:
    said, _ = job.process.communicate()
    job.said = printable(said or "", 4000).strip()


def _runs(job: Job) -> bool:
    return job.process.poll() is None


def _sentence(job: Job) -> str:
    if _runs(job):
        return f"{job.words}: under way"
    code = job.process.returncode
    ended = job.said or ("done" if code == 0 else f"ended with code {code}")
    return f"{job.words}: {ended}"

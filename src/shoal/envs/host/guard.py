"""The guard of a worker process: it ends the worker and all that the environment has started.

The process that Shoal starts forks before it imports anything. Its child plays; the parent is the
guard. When the child ends, when Shoal tells it to, or when Shoal is gone, the guard kills the child
and all that the child has started, also processes in other sessions. Then it ends with the child's
exit code or signal.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

# in seconds
CLOSING = 2.0  # for a worker to end by itself when asked to
LEAVING = 0.5  # for its children to end, once the worker has ended
SWEEPING = 5.0  # until giving up on what cannot be killed
# options of Linux's prctl
DEATH_SIGNAL = 1
SUBREAPER = 36
FORWARDED = signal.SIGUSR1  # asks a worker for its stack (`watched.py`)


def die_with(parent: int) -> None:
    """Ask Linux to kill this process when the thread that started it ends."""
    _prctl(DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def fork(orders: int, answers: int, sign: str) -> None:
    """Fork: return in the child; guard it in the parent.

    The parent waits until the child and all it started have ended, then ends as the child did.
    """
    _prctl(SUBREAPER, 1)  # orphaned descendants become children of the guard
    guard = Guard(orders)
    me = os.getpid()
    guard.child = os.fork()
    if guard.child:
        guard.stand(answers, sign)
    for number in Guard.HEARD:
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    os.setsid()  # signals to the child's group do not reach the guard
    die_with(me)


class Guard:
    """The guard, parent of the child that plays."""

    HEARD = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, FORWARDED)

    def __init__(self, orders: int):
        self.orders = orders
        self.child = 0
        self.told = False
        self.bell, ring = os.pipe()
        os.set_blocking(ring, False)
        signal.set_wakeup_fd(ring, warn_on_full_buffer=False)
        for number in self.HEARD:
            signal.signal(number, self._hear)

    def stand(self, answers: int, sign: str) -> NoReturn:
        """Watch the child until it ends, then end likewise; answers begin with `sign`."""
        status = self._watch()
        left = self._sweep(0.0 if self.told else LEAVING)
        if left:
            with contextlib.suppress(OSError):  # the parent no longer reads
                os.write(answers, f"{sign}{json.dumps({'left': left})}\n".encode())
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            with contextlib.suppress(OSError):  # some signals cannot be set
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        os._exit(code if code >= 0 else 1)

    def _watch(self) -> int:
        """Wait until the child ends or is killed here; return its status."""
        poll = select.poll()
        poll.register(self.bell, select.POLLIN)
        poll.register(self.orders, 0)  # only whether it is closed, not its content
        end = None  # no time limit yet
        while True:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == self.child:
                return status
            if ended:  # an orphan that this guard adopted
                continue
            self.told |= end is not None and time.monotonic() >= end
            if self.told:
                os.kill(self.child, signal.SIGKILL)
            wait = None if end is None else max(end - time.monotonic(), 0.05)
            for place, _ in poll.poll(wait and 1e3 * wait):
                if place == self.bell:
                    os.read(self.bell, 4096)
                else:
                    poll.unregister(self.orders)
                    end = time.monotonic() + CLOSING

    def _sweep(self, patience: float) -> list[str]:
        """Kill what the child left running after `patience` seconds; return the names."""
        since = time.monotonic()
        left = []
        while there := self._there():
            spent = time.monotonic() - since
            if spent > patience:
                left = left or [f"{name} ({pid})" for pid, name in there.items()]
                for pid in there:
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
            if spent > patience + SWEEPING:
                break
            time.sleep(0.01)
        with contextlib.suppress(OSError):
            os.killpg(self.child, signal.SIGKILL)  # without /proc, only the group can be killed
        return left

    def _there(self) -> dict[int, str]:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        return descendants(os.getpid())

    def _hear(self, number: int, frame: Any) -> None:
        if number == FORWARDED and self.child:
            os.kill(self.child, FORWARDED)
        self.told |= number in (signal.SIGTERM, signal.SIGINT)


def descendants(pid: int) -> dict[int, str]:
    """Names of all descendants of a process, by process id. Only on Linux."""
    parents = {}
    names = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):  # the process has ended meanwhile
            name, _, facts = (
                (place / "stat").read_text(errors="replace").partition("(")[2].rpartition(")")
            )
            state, parent = facts.split()[:2]
            if state not in "ZX":
                parents[int(place.name)] = int(parent)
                names[int(place.name)] = name
    found = {}
    fresh = {pid}
    while fresh:
        fresh = {
            child for child, parent in parents.items() if parent in fresh and child not in found
        }
        found |= {child: names[child] for child in fresh}
    return found


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)

"""The guard of a worker process: whatever the environment does in there, nothing of it stays
behind.

The process that is started forks before it has imported anything. Its child plays; the parent is
the guard, which ends the child and all that the child has started, also what went into a session of
its own, when the child ends, when it is told to, or when whoever started it is gone. Then it ends
as the child did.
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

CLOSING = 2.0  # seconds a worker has to end by itself when it is asked to
LEAVING = 0.5  # and what it has started, once it has ended
SWEEPING = 5.0  # after so long what cannot be ended is left
# of Linux's prctl
DEATH_SIGNAL = 1
SUBREAPER = 36
FORWARDED = signal.SIGUSR1  # where is it? (`watched.py`)


def die_with(parent: int) -> None:
    """Even while an environment hangs: Linux kills us when the parent's thread that started us is
    gone."""
    _prctl(DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


def fork(orders: int, answers: int) -> None:
    """Return in a child of this process; here stand guard until it and its own have ended, and end
    likewise."""
    _prctl(SUBREAPER, 1)  # children whose parents have gone become ours
    guard = Guard(orders)
    me = os.getpid()
    guard.child = os.fork()
    if guard.child:
        guard.stand(answers)
    for number in Guard.HEARD:
        signal.signal(number, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    os.setsid()  # what it does to its own group does not reach the guard
    die_with(me)


class Guard:
    """Stands between whoever started us and the child that plays."""

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

    def stand(self, answers: int) -> NoReturn:
        """Until the child has ended."""
        status = self._watch()
        left = self._sweep(0.0 if self.told else LEAVING)
        if left:
            with contextlib.suppress(OSError):  # nobody listens any more
                os.write(answers, json.dumps({"left": left}).encode() + b"\n")
        code = os.waitstatus_to_exitcode(status)
        if code < 0:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            with contextlib.suppress(OSError):  # some cannot be chosen
                signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        os._exit(code if code >= 0 else 1)

    def _watch(self) -> int:
        """The child's status, once it has ended: by itself, or because it had to."""
        poll = select.poll()
        poll.register(self.bell, select.POLLIN)
        poll.register(self.orders, 0)  # whether it is closed, not what it says
        end = None  # it has no time limit yet
        while True:
            ended, status = os.waitpid(-1, os.WNOHANG)
            if ended == self.child:
                return status
            if ended:  # an orphan that came to us
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
        """End what the child has left, if it does not end by itself; what that was."""
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
            os.killpg(self.child, signal.SIGKILL)  # all there is to do where there is no /proc
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
    """The processes that a process has started, and those that they have, by number: their names.
    Only on Linux."""
    parents = {}
    names = {}
    for place in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):  # it has ended meanwhile
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

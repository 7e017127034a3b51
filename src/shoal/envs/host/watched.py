"""A process of its own for somebody's environment, and we who watch it: it may raise, hang, exit or
crash there.

It is a plain `python -m shoal.envs.host.worker`, so that nothing is forked under JAX, nothing is
pickled, and a user's script is not run again. It is told what to do as JSON, takes orders of one
byte and answers with lines of JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

from ...errors import ShoalError
from .guard import CLOSING, FORWARDED
from .match import Lineup, from_json

WAKING = 120.0  # seconds until a process is ready, which takes one where a machine is not busy
STARTING = 120.0  # that making an environment may take, or more if patience is longer
PARTING = 10.0  # that a process may take to end which has nothing more to say
GLANCE = 0.2  # seconds after which we look whether we are to stop
CHATTER = 2**20  # bytes that are kept of what a worker complains
OURS = str(Path(__file__).parent.parent)
# as faulthandler writes it, the innermost first
FRAME = re.compile(r'^  File "(.*)", line \d+ in (.*)$', re.M)


class Halted(KeyboardInterrupt):
    """Something was given up, as it was asked to."""


class Lost(Exception):
    """A process that will answer no more."""

    def __init__(self, end: str, seconds: float = 0.0, call: str = ""):
        self.end = end
        self.seconds = seconds
        self.call = call
        where = f", in {call}" if call else ""
        silent = f"it did not answer for {seconds:g} seconds{where}"
        super().__init__(silent if seconds else f"its process {end}")


def never() -> bool:
    return False


def making(patience: float) -> float:
    """Seconds that making an environment may take."""
    return max(STARTING, patience)


class Watched:
    """Such a process. On Linux it ends, with all that it has started, however we end."""

    def __init__(self, about: dict[str, Any], share: Sequence[int] = ()):
        (orders, self.orders) = os.pipe()
        (self.answers, answers) = os.pipe()
        self.pipes = [self.orders, self.answers]
        self.heard = b""
        self.complaints: IO[bytes] = tempfile.TemporaryFile("a+b")  # noqa: SIM115 open until it ends
        self.process: subprocess.Popen | None = None
        try:
            with tempfile.TemporaryFile() as words:  # they may be more than a command line takes
                words.write(json.dumps(about | {"orders": orders, "answers": answers}).encode())
                words.seek(0)
                self.process = subprocess.Popen(
                    # -P: no import from this folder
                    [sys.executable, "-P", "-m", "shoal.envs.host.worker"],
                    pass_fds=(*share, orders, answers),
                    stdin=words,
                    stdout=subprocess.DEVNULL,  # what environments print is of no use to anyone
                    stderr=self.complaints,
                    start_new_session=True,  # Ctrl-C is for us, who then close the pipe
                    env=os.environ
                    | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
                )
        except BaseException:
            self.end(0.0)
            raise
        finally:
            os.close(orders)
            os.close(answers)

    def __enter__(self) -> Watched:
        return self

    def __exit__(self, *_: Any) -> None:
        self.end(0.0)

    def ready(self, halted: Callable[[], bool] = never) -> None:
        """Wait for it: before, nothing of the environment is there."""
        self.answer(lambda: WAKING, halted=halted)

    def order(self, what: bytes) -> None:
        """Tell it to do something."""
        with contextlib.suppress(BrokenPipeError):  # it is dead, as its answer will say
            os.write(self.orders, what)

    def answer(
        self,
        patience: Callable[[], float],
        pulse: Callable[[], Any] = lambda: None,
        halted: Callable[[], bool] = never,
    ) -> Any:
        """What it says next. It may be silent for so long, and longer if its pulse changes
        meanwhile."""
        line = self._line(patience, pulse, halted)
        if os.fstat(self.complaints.fileno()).st_size > CHATTER:
            self.complaints.truncate(0)
        said = json.loads(line)
        if isinstance(said, dict) and "error" in said:
            error = ShoalError(said["error"])
            error.detail = said["detail"]
            error.exit_code = said["exit_code"]
            raise error
        return said

    def said(self, since: int = 0) -> str:
        """The last it complained, from that byte on."""
        self.complaints.seek(since)
        return self.complaints.read().decode(errors="replace")[-2000:]

    def leave(self) -> None:
        """Let it go: it ends by itself, or its guard makes it, soon."""
        while self.pipes:
            os.close(self.pipes.pop())

    def end(self, grace: float = CLOSING) -> None:
        """Make it end with all that it has started, at once or after it could do so by itself."""
        self.leave()
        if self.process:
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(grace)
            finally:  # also after Ctrl-C
                self._finish(self.process)
                self.process = None
        self.complaints.close()

    def _finish(self, process: subprocess.Popen) -> None:
        process.terminate()  # its guard sweeps up
        try:
            process.wait(CLOSING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _line(
        self, patience: Callable[[], float], pulse: Callable[[], Any], halted: Callable[[], bool]
    ) -> bytes:
        was = pulse()
        since = time.monotonic()
        asked = 0.0
        while b"\n" not in self.heard:
            if select.select(
                [self.answers], [], [], min(max(since + patience() - time.monotonic(), 0.0), GLANCE)
            )[0]:
                more = os.read(self.answers, 65536)
                if not more:
                    raise Lost(self._epitaph())
                self.heard += more
                continue
            now = time.monotonic()
            if halted():
                asked = asked or now
                if now - asked > CLOSING:
                    raise Halted
            if now - since >= patience():
                if was == pulse():
                    raise self._silence(patience())
                was = pulse()
                since = now
        line, _, self.heard = self.heard.partition(b"\n")
        return line

    def _silence(self, seconds: float) -> Lost:
        """Where it is while it says nothing: asked for, it writes it to its complaints."""
        assert self.process, "it was never started"
        before = os.fstat(self.complaints.fileno()).st_size
        end = time.monotonic() + CLOSING
        self.process.send_signal(FORWARDED)
        while time.monotonic() < end and not FRAME.search(self.said(before)):
            time.sleep(0.02)
        time.sleep(0.05)  # for the rest of it
        return Lost("hangs", seconds, called(self.said(before)))

    def _epitaph(self) -> str:
        assert self.process, "it was never started"
        try:
            code = self.process.wait(CLOSING)
        except subprocess.TimeoutExpired:
            return "closed the pipe that answers come through"
        return f"ended with {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"


def called(stack: str) -> str:
    """The call of ours to an environment that a stack is in, as far as the environment is written
    in Python."""
    inner = ""
    for file, name in FRAME.findall(stack):
        if file.startswith(OURS):
            return inner
        inner = name
    return ""


def probe(name: str, options: dict[str, Any], patience: float, draws: bool = False) -> Lineup:
    """Who plays in an environment and what it says, as a process of its own tells that opens one
    and closes it again."""
    about = {"task": "probe", "env": name, "options": options, "draws": draws}
    with Watched(about) as process:
        try:
            process.ready()
            said = process.answer(lambda: making(patience))
        except Lost as lost:
            error = ShoalError(f"{name} cannot be opened: {verdict(lost)}")
            error.detail = process.said()
            raise error from None
        # it closes the environment, which may be the only one there can be
        with contextlib.suppress(Lost):
            process.answer(lambda: PARTING)
    return Lineup(from_json(said["teams"]), tuple(said["metrics"]))


def verdict(lost: Lost, call: str = "its constructor") -> str:
    """What an environment did with its process; `call` is what it was asked for, if nobody knows
    better."""
    if lost.seconds:
        return f"it does not return from {lost.call or call} within {lost.seconds:g} s"
    return f"it ends the process ({lost.end.removeprefix('ended with ')})"

"""A watched process for an environment: if it raises, hangs, exits or crashes, Shoal goes on.

The process is a plain `python -m shoal.envs.host.worker_main`. So nothing is forked under JAX,
nothing is pickled, and the user's script is not run again. It reads its task as JSON, takes orders
of one byte, and answers in lines of JSON, each behind a sign by which it is known: an environment
may write to any file that its process has open.
"""

from __future__ import annotations

import contextlib
import fcntl
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

# in seconds
WAKING = 120.0  # until a process is ready; takes one second on an idle machine
STARTING = 120.0  # to create an environment; longer if patience is
PARTING = 10.0  # for a process to end after its last answer
POLL = 0.2  # between checks whether the run is stopping
STDERR = 2**20  # bytes of a process's stderr to keep
OURS = str(Path(__file__).parent.parent)
ENDED = "ended with "
# a line of a stack that faulthandler writes, innermost call first
FRAME = re.compile(r'^  File "(.*)", line \d+ in (.*)$', re.M)
# its last line: the outermost call, or dots instead of calls beyond the hundredth
STACK_END = re.compile(r"^  (File .* in _run_module_as_main|\.\.\.)$", re.M)


class Halted(KeyboardInterrupt):
    """Raised when waiting is abandoned because the run is stopping."""


class Lost(Exception):
    """Raised when a process has ended or hangs."""

    def __init__(self, end: str, seconds: float = 0.0, call: str = ""):
        self.end = end
        self.seconds = seconds
        self.call = call
        where = f", in {call}" if call else ""
        silent = f"it did not answer for {seconds:g} seconds{where}"
        super().__init__(silent if seconds else f"its process {end}")


def never() -> bool:
    return False


def creation_patience(patience: float) -> float:
    """Seconds that creating an environment may take."""
    return max(STARTING, patience)


class Watched:
    """A watched process. On Linux it ends with its parent, together with all it has started."""

    def __init__(self, about: dict[str, Any], share: Sequence[int] = ()):
        (orders, self.orders) = os.pipe()
        (self.answers, answers) = os.pipe()
        self.pipes = [self.orders, self.answers]
        self.heard = b""
        self.sign = os.urandom(8).hex()
        self.stderr = appended_file()
        self.process: subprocess.Popen | None = None
        try:
            with tempfile.TemporaryFile() as words:  # may be too long for a command line
                pipes = {"orders": orders, "answers": answers, "sign": self.sign}
                words.write(json.dumps(about | pipes).encode())
                words.seek(0)
                self.process = subprocess.Popen(
                    # -P: do not import from the working directory
                    [sys.executable, "-P", "-m", "shoal.envs.host.worker_main"],
                    pass_fds=(*share, orders, answers),
                    stdin=words,
                    stdout=subprocess.DEVNULL,  # drop what environments print
                    stderr=self.stderr,
                    start_new_session=True,  # Ctrl-C is for the parent, which closes the pipe
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
        """Wait until the process runs; it has not imported the environment yet."""
        self.answer(lambda: WAKING, halted=halted)

    def order(self, what: bytes) -> None:
        """Send orders of one byte each."""
        with contextlib.suppress(BrokenPipeError):  # the process is dead, as `answer` will find
            os.write(self.orders, what)

    def answer(
        self,
        patience: Callable[[], float],
        pulse: Callable[[], Any] = lambda: None,
        halted: Callable[[], bool] = never,
    ) -> Any:
        """Wait for the next answer.

        Waits `patience()` seconds, and starts over each time that `pulse` changes.
        """
        line = self._line(patience, pulse, halted)
        if os.fstat(self.stderr.fileno()).st_size > STDERR:
            self.stderr.truncate(0)
        said = json.loads(line)
        if isinstance(said, dict) and "error" in said:
            error = ShoalError(said["error"])
            error.detail = said["detail"]
            error.exit_code = said["exit_code"]
            raise error
        return said

    def stderr_tail(self) -> str:
        return self._stderr_since(0)[-2000:]

    def _stderr_since(self, byte: int) -> str:
        self.stderr.seek(byte)
        return self.stderr.read().decode(errors="replace")

    def dismiss(self) -> None:
        """Close the pipes; the process soon ends by itself or by its guard."""
        while self.pipes:
            os.close(self.pipes.pop())

    def end(self, grace: float = CLOSING) -> None:
        """End the process and all it has started, after `grace` seconds to end by itself."""
        self.dismiss()
        if self.process:
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.process.wait(grace)
            finally:  # also after Ctrl-C
                self._finish(self.process)
                self.process = None
        self.stderr.close()

    def _finish(self, process: subprocess.Popen) -> None:
        process.terminate()  # its guard ends its children
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
                [self.answers], [], [], min(max(since + patience() - time.monotonic(), 0.0), POLL)
            )[0]:
                more = os.read(self.answers, 65536)
                if not more:
                    raise Lost(self._how_it_ended())
                self.heard += more
                continue
            now = time.monotonic()
            if halted():
                asked = asked or now
                if now - asked > CLOSING:
                    raise Halted
            if now - since >= patience():
                if was == pulse():
                    raise self._hangs(patience())
                was = pulse()
                since = now
        line, _, self.heard = self.heard.partition(b"\n")
        if not line.startswith(self.sign.encode()):
            raise Lost("wrote into the pipe that answers come through")
        return line.removeprefix(self.sign.encode())

    def _hangs(self, seconds: float) -> Lost:
        """Ask a hanging process for its stack, which it writes to stderr."""
        assert self.process, "it was never started"
        before = os.fstat(self.stderr.fileno()).st_size
        end = time.monotonic() + CLOSING
        self.process.send_signal(FORWARDED)
        while time.monotonic() < end and not STACK_END.search(self._stderr_since(before)):
            time.sleep(0.02)
        return Lost("hangs", seconds, environment_call(self._stderr_since(before)))

    def _how_it_ended(self) -> str:
        assert self.process, "it was never started"
        try:
            code = self.process.wait(CLOSING)
        except subprocess.TimeoutExpired:
            return "closed the pipe that answers come through"
        return f"{ENDED}{signal.Signals(-code).name if code < 0 else f'exit code {code}'}"


def appended_file() -> IO[bytes]:
    """A temporary file whose writers append, wherever its reader is."""
    file = tempfile.TemporaryFile()  # noqa: SIM115 open until its process ends
    # its mode cannot say so: a process that inherits the file shares its position
    fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
    return file


def environment_call(stack: str) -> str:
    """The environment's function in a stack that Shoal called; empty if it is not Python."""
    inner = ""
    for file, name in FRAME.findall(stack):
        if file.startswith(OURS):
            return inner
        inner = name
    return ""


def probe(name: str, options: dict[str, Any], patience: float, draws: bool = False) -> Lineup:
    """Open and close an environment in a watched process; return its teams and metrics."""
    about = {"task": "probe", "env": name, "options": options, "draws": draws}
    with Watched(about) as process:
        try:
            process.ready()
            said = process.answer(lambda: creation_patience(patience))
        except Lost as lost:
            error = ShoalError(f"{name} cannot be opened: {how_lost(lost)}")
            error.detail = process.stderr_tail()
            raise error from None
        # wait for the environment to close: there may be only one at a time
        with contextlib.suppress(Lost):
            process.answer(lambda: PARTING)
    return Lineup(from_json(said["teams"]), tuple(said["metrics"]))


def how_lost(lost: Lost, call: str = "its constructor") -> str:
    """Describe how the process was lost; `call` is used if its stack names no function."""
    if lost.seconds:
        return f"it does not return from {lost.call or call} within {lost.seconds:g} s"
    if lost.end.startswith(ENDED):
        return f"it ends the process ({lost.end.removeprefix(ENDED)})"
    return f"it {lost.end}"

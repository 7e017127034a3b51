"""Many games on the host at once: in this process, or in worker processes that write into shared memory.

Workers are plain `python -m` processes that are told by a byte to step and answer with a line, so nothing is forked
under JAX, nothing is pickled, and a user's script is not run again. The shared memory is a file without a name: it is
gone when the last process that has it open is. A worker ends when its pipe closes, whatever ended us.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from typing import IO, Any

import numpy as np

from ..types import ShoalError, View
from .host import TRIES, Fault, Glance, Hosted, Table, TooManyFaults, seed_of, shared

STARTING = 120.0  # seconds a worker may take to be ready
CLOSING = 2.0  # and to end when it is asked to
CHATTER = 2**20  # bytes that are kept of what a worker complains


class Arena:
    """`games` games of an environment, stepped together."""

    def __init__(self, env: Hosted, games: int, seed: int, workers: int = 0, patience: float = 60.0):
        self.env, self.games = env, games
        fast = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.memory: IO[bytes] = tempfile.TemporaryFile(dir=fast)  # noqa: SIM115 open until we are closed
        self.arrays = shared(self.memory, env.teams, games)  # see `host.layout`
        self.crews: list[Any] = [] if workers else [Here(Table(env, self.arrays, range(games), seed))]
        bounds = np.linspace(0, games, min(workers, games) + 1).astype(int).tolist()
        try:
            for low, high in pairwise(bounds):
                self.crews.append(Worker(self, range(low, high), seed, patience))
                self.crews[-1].start()
        except BaseException:  # also Ctrl-C: nobody else knows of those that have started
            self.close()
            raise

    def step(self, actions: dict[str, np.ndarray] | None = None) -> list[Fault]:
        """Advance every game, or open it; what broke meanwhile."""
        for team, action in (actions or {}).items():
            self.arrays[f"{team}/action"][:] = action
        for crew in self.crews:
            crew.go()
        return [fault for crew in self.crews for fault in crew.wait()]

    def reopen(self, episode: int | np.ndarray = 0) -> list[Fault]:
        """Open every game anew with the episode after that."""
        self.arrays["over"][:] = True
        self.arrays["episode"][:] = episode
        return self.step()

    def views(self) -> dict[str, View]:
        """What every team sees now: the arrays themselves, which the next step overwrites."""
        common = {name: self.arrays[name] for name in ("state", "first")}
        return {
            team: View(**common, **{name: self.arrays[f"{team}/{name}"] for name in Glance._fields})  # type: ignore[arg-type]
            for team in self.env.teams
        }

    def close(self) -> None:
        """End every process and give the memory back."""
        for crew in self.crews:
            crew.close()
        self.crews = []
        self.arrays = {}  # the last that holds the memory
        self.memory.close()

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


class Here:
    """A crew in this process."""

    def __init__(self, table: Table):
        self.table = table

    def go(self) -> None:
        """Nothing goes on meanwhile."""

    def wait(self) -> list[Fault]:
        return self.table.step()

    def close(self) -> None:
        self.table.close()


class Worker:
    """A crew in a process of its own. One that dies or hangs is started anew, and the episodes it played are lost.

    On Linux it ends with the thread that started it, not only with the process: start it in one that stays.
    """

    def __init__(self, arena: Arena, part: range, seed: int, patience: float):
        self.arena, self.part, self.seed, self.patience = arena, part, seed, patience
        self.under_way = np.zeros(len(part), bool)  # episodes that would be lost
        self.process: subprocess.Popen | None = None  # once it has started
        self.pipes: list[int] = []  # our ends: orders, answers

    def start(self) -> None:
        """Start the process; it says when it is ready."""
        memory = self.arena.memory.fileno()
        (orders, self.orders), (self.answers, answers) = os.pipe(), os.pipe()
        self.pipes, self.heard, self.ready = [self.orders, self.answers], b"", False
        about = {
            "env": self.arena.env.name,
            "options": self.arena.env.options,
            "games": self.arena.games,
            "part": [self.part.start, self.part.stop],
            "seed": self.seed,
            "memory": memory,
            "orders": orders,
            "answers": answers,
            "parent": os.getpid(),
        }
        self.complaints: IO[bytes] = tempfile.TemporaryFile("a+b")  # noqa: SIM115 open until it ends
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "shoal.envs.worker", json.dumps(about)],  # -P: no import from this folder
                pass_fds=(memory, orders, answers),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,  # what environments print when they are imported is of no use to anyone
                stderr=self.complaints,
                start_new_session=True,  # Ctrl-C is for us, who then close the pipe
                env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"},
            )
        finally:
            os.close(orders)
            os.close(answers)

    def go(self) -> None:
        """Tell it to step."""
        arrays, part = self.arena.arrays, slice(self.part.start, self.part.stop)
        self.under_way = (arrays["episode"][part] > 0) & ~arrays["over"][part]
        self._order()

    def wait(self) -> list[Fault]:
        """Its faults of this step."""
        faults: list[Fault] = []
        for _ in range(TRIES):
            answer = self._answer()
            if not isinstance(answer, str):
                if faults:
                    self.arena.arrays["broken"][self.part.start : self.part.stop] |= self.under_way
                return faults + answer
            faults.append(self._lost(answer))
            self._end(0.0)
            self.start()
            self._order()
        raise TooManyFaults(f"a worker process was lost {TRIES} times in a row, the last time", faults[-1])

    def close(self) -> None:
        self._end(CLOSING)

    def _order(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # it is dead, as its answer will say
            os.write(self.orders, b"g")

    def _answer(self) -> list[Fault] | str:
        """Faults, or why there is no answer."""
        if not self.ready:
            line = self._line(STARTING)
            if isinstance(line, str):
                return line
            self.ready = True
            self._understood(line)
        line = self._line(self.patience)
        if os.fstat(self.complaints.fileno()).st_size > CHATTER:
            self.complaints.truncate(0)
        return line if isinstance(line, str) else self._understood(line)

    def _understood(self, line: bytes) -> list[Fault]:
        said = json.loads(line)
        if isinstance(said, dict):
            error = ShoalError(said["error"])
            error.detail, error.exit_code = said["detail"], said["exit_code"]
            raise error
        return [Fault(*fault) for fault in said]

    def _line(self, patience: float) -> bytes | str:
        """The next line it writes, or why there is none: it may be silent for so long with each of its games."""
        pulse, end = self._pulse(), time.monotonic() + patience
        while b"\n" not in self.heard:
            left = max(end - time.monotonic(), 0.0)
            if select.select([self.answers], [], [], min(left, 1e6))[0]:
                more = os.read(self.answers, 65536)
                if not more:
                    return self._epitaph()
                self.heard += more
            elif pulse == self._pulse():
                return f"it did not answer for {patience:g} seconds"
            else:
                pulse, end = self._pulse(), time.monotonic() + patience
        line, _, self.heard = self.heard.partition(b"\n")
        return line

    def _pulse(self) -> list[bytes]:
        """Changes as it goes from game to game."""
        part = slice(self.part.start, self.part.stop)
        return [self.arena.arrays[name][part].tobytes() for name in ("busy", "episode", "taken")]

    def _epitaph(self) -> str:
        assert self.process, "it was never started"
        try:
            code = self.process.wait(CLOSING)
        except subprocess.TimeoutExpired:
            return "its process closed the pipe that answers come through"
        return f"its process ended with {signal.Signals(-code).name if code < 0 else f'exit code {code}'}"

    def _lost(self, why: str) -> Fault:
        """The game that was being stepped, and all that its process said."""
        arrays = self.arena.arrays
        busy = [game for game in self.part if arrays["busy"][game]]
        game = busy[0] if busy else self.part.start
        arrays["busy"][self.part.start : self.part.stop] = False
        self.complaints.seek(0)
        said = self.complaints.read().decode(errors="replace")[-2000:]
        episode, step = int(arrays["episode"][game]), int(arrays["taken"][game])
        return Fault(self.arena.env.name, game, episode, seed_of(self.seed, game, episode), step, f"{why}\n{said}")

    def _end(self, grace: float) -> None:
        """Ask it to end by closing the pipes, and make it end if it does not, with all that it started."""
        while self.pipes:
            os.close(self.pipes.pop())
        if self.process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(grace)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
            self.complaints.close()

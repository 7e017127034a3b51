"""Workers: step the games of an arena, in this process or in processes of their own.

The arena tells every worker to step (`go`), then waits for each (`wait`). It knows a worker only by
the protocol `Worker`. A worker on another machine would send the actions of its games in `go`, and
write the results into the same rows in `wait`. This module is the parent's side, where a worker
that hangs is ended and replaced. `worker_main.py` is what a worker process runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, Protocol

import numpy as np

from .faults import Fault, TooManyFaults
from .match import Hosted, to_json
from .table import TRIES, PackedPicture, Table, seed_of
from .watched import Lost, Watched, creation_patience, never


@dataclass(frozen=True)
class Assignment:
    """The games of a worker, and the arrays it writes to."""

    env: Hosted
    games: range  # their rows in the arrays
    total: int  # number of games in the arena, so rows of the arrays
    seed: int  # of the run
    arrays: dict[str, np.ndarray]  # see `shared.layout`
    memory: IO[bytes]  # the file that holds the arrays, for other processes of this machine
    patience: float = 60.0  # seconds that a call of the environment may take
    halted: Callable[[], bool] = never  # whether the run is stopping

    @property
    def rows(self) -> slice:
        return slice(self.games.start, self.games.stop)


class Worker(Protocol):
    """Steps a share of an arena's games."""

    def start(self) -> None:
        """Start to get ready; `wait` waits for it."""
        ...

    def go(self) -> None:
        """Start a step of every game with the actions in the arrays; restart if closed."""
        ...

    def wait(self) -> list[Fault]:
        """Wait until the step is done and its results are in the arrays; return its faults."""
        ...

    def render(self) -> list[PackedPicture]:
        """Pictures of those games that are marked as `shown` in the arrays."""
        ...

    def dismiss(self) -> None:
        """Start to close, so that several workers close at the same time."""
        ...

    def close(self) -> None:
        """Close all games and wait until they are; the next `go` opens new ones."""
        ...


class LocalWorker:
    """Plays all games in this process."""

    def __init__(self, assignment: Assignment):
        a = assignment
        self.table = Table(a.env, a.arrays, a.games, a.seed)

    def start(self) -> None:
        """Do nothing: the first step opens the games."""

    def go(self) -> None:
        """Do nothing: `wait` steps the games."""

    def wait(self) -> list[Fault]:
        return self.table.step()

    def render(self) -> list[PackedPicture]:
        return self.table.render()

    def dismiss(self) -> None:
        """Do nothing: there is no process."""

    def close(self) -> None:
        self.table.close()


class ProcessWorker:
    """Plays its games in a process of its own.

    A process that dies or hangs is replaced; the episodes it played are lost.
    """

    def __init__(self, assignment: Assignment):
        self.assignment = assignment
        # episodes that would be lost with the process
        self.under_way = np.zeros(len(assignment.games), bool)
        self.process: Watched | None = None  # set once started
        self.ready = False

    def start(self) -> None:
        self._started()

    def go(self) -> None:
        a = self.assignment
        self.under_way = (a.arrays["episode"][a.rows] > 0) & ~a.arrays["over"][a.rows]
        (self.process or self._started()).order(b"g")

    def wait(self) -> list[Fault]:
        faults: list[Fault] = []
        for _ in range(TRIES):
            try:
                answer = [Fault(*fault) for fault in self._answer()]
            except Lost as lost:
                faults.append(self._fault(lost))
                self._end(0.0)
                self._started().order(b"g")
                continue
            if faults:
                self.assignment.arrays["broken"][self.assignment.rows] |= self.under_way
            return faults + answer
        raise TooManyFaults(
            f"a worker process was lost {TRIES} times in a row, the last time", faults[-1]
        )

    def render(self) -> list[PackedPicture]:
        assert self.process, "its games are not open"
        self.process.order(b"d")
        try:
            return self._answer()
        except Lost as lost:
            raise TooManyFaults("a match cannot be drawn", self._fault(lost)) from None

    def dismiss(self) -> None:
        if self.process:
            self.process.dismiss()

    def close(self) -> None:
        self._end()

    def _started(self) -> Watched:
        """Start the process, which reports when it is ready."""
        a = self.assignment
        about = {
            "task": "play",
            "env": a.env.name,
            "options": a.env.options,
            "teams": to_json(a.env.teams),
            "metrics": a.env.metrics,
            "draws": a.env.draws,
            "games": a.total,
            "part": [a.games.start, a.games.stop],
            "seed": a.seed,
            "memory": a.memory.fileno(),
        }
        self.ready = False
        self.process = Watched(about, [a.memory.fileno()])
        return self.process

    def _answer(self) -> Any:
        """Wait for the answer to an order."""
        assert self.process, "it was never started"
        halted = self.assignment.halted
        if not self.ready:
            self.process.ready(halted)
            self.ready = True
        return self.process.answer(self._patience, self._pulse, halted)

    def _patience(self) -> float:
        """Seconds that the current call may take."""
        a = self.assignment
        creating = a.arrays["creating"][a.rows].any()
        return creation_patience(a.patience) if creating else a.patience

    def _pulse(self) -> list[bytes]:
        """A value that changes from game to game; patience starts over with each."""
        a = self.assignment
        names = ("busy", "creating", "episode", "taken")
        return [a.arrays[name][a.rows].tobytes() for name in names]

    def _fault(self, lost: Lost) -> Fault:
        """The fault of the game that was being stepped, with the process's last stderr."""
        assert self.process, "it was never started"
        a = self.assignment
        busy = [game for game in a.games if a.arrays["busy"][game]]
        game = busy[0] if busy else a.games.start
        for name in ("busy", "creating"):
            a.arrays[name][a.rows] = False
        episode = int(a.arrays["episode"][game])
        step = int(a.arrays["taken"][game])
        seed = seed_of(a.seed, game, episode)
        report = f"{lost}\n{self.process.stderr_tail()}"
        return Fault(a.env.name, game, episode, seed, step, report)

    def _end(self, *grace: float) -> None:
        if self.process:
            self.process.end(*grace)
            self.process = None

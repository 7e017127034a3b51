"""Workers: step the games of an arena, in this process or in processes of their own.

The arena tells every worker to step a part of its games (`go`), then waits for each (`wait`). One
half may be told to step before the other has answered, so that a worker always has something to do.
The arena knows a worker only by the protocol `Worker`. A worker on another machine would send the
actions of its games in `go`, and write the results into the same rows in `wait`. This module is the
parent's side, where a worker that hangs is ended and replaced. `worker_main.py` is what a worker
process runs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, Protocol

import numpy as np

from .faults import Fault, TooManyFaults
from .match import Hosted, to_json
from .parts import ALL, DRAW, part_of
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

    def rows(self, part: int = ALL) -> slice:
        """The rows of a part of its games."""
        games = part_of(self.games, part)
        return slice(games.start, games.stop)


class Worker(Protocol):
    """Steps a share of an arena's games."""

    def start(self) -> None:
        """Start to get ready; `wait` waits for it."""
        ...

    def go(self, part: int) -> None:
        """Start a step of a part's games with the actions in the arrays; restart if closed."""
        ...

    def wait(self, part: int) -> list[Fault]:
        """Wait until that step is done and its results are in the arrays; return its faults.

        Parts are waited for in the order in which they were started."""
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

    def go(self, part: int) -> None:
        """Do nothing: `wait` steps the games."""

    def wait(self, part: int) -> list[Fault]:
        return self.table.step(part)

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
        # by game of the arena: episodes that would be lost with the process, and those that were
        self.under_way = np.zeros(assignment.total, bool)
        self.lost = np.zeros(assignment.total, bool)
        self.process: Watched | None = None  # set once started
        self.ready = False
        self.ordered: list[int] = []  # parts that are not answered yet, in order

    def start(self) -> None:
        self._started()

    def go(self, part: int) -> None:
        while self.ordered and (part in self.ordered or ALL in (part, *self.ordered)):
            self.wait(self.ordered[0])  # a window was given up in the midst of this step
        self._note(part)
        process = self.process or self._started()
        self.ordered.append(part)
        process.order(bytes([part]))

    def wait(self, part: int) -> list[Fault]:
        assert self.ordered[0] == part, "parts answer in order"
        faults: list[Fault] = []
        for _ in range(TRIES):
            try:
                answer = [Fault(*fault) for fault in self._answer()]
            except Lost as lost:
                faults.append(self._fault(lost))
                self._replace()
                continue
            del self.ordered[0]
            rows = self.assignment.rows(part)
            self.assignment.arrays["broken"][rows] |= self.lost[rows]
            self.lost[rows] = False
            self._note(part)
            return faults + answer
        raise TooManyFaults(
            f"a worker process was lost {TRIES} times in a row, the last time", faults[-1]
        )

    def render(self) -> list[PackedPicture]:
        assert self.process, "its games are not open"
        self.process.order(bytes([DRAW]))
        try:
            return self._answer()
        except Lost as lost:
            raise TooManyFaults("a match cannot be drawn", self._fault(lost)) from None

    def dismiss(self) -> None:
        if self.process:
            self.process.dismiss()

    def close(self) -> None:
        self._end()

    def _note(self, part: int) -> None:
        """Note which episodes of a part are under way."""
        a = self.assignment
        rows = a.rows(part)
        self.under_way[rows] = (a.arrays["episode"][rows] > 0) & ~a.arrays["over"][rows]

    def _replace(self) -> None:
        """Replace a lost process, whose games all lose their episodes, and repeat its orders."""
        self.lost |= self.under_way
        ordered = self.ordered
        self._end(0.0)
        self.ordered = ordered
        self._started().order(bytes(ordered))

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
        creating = a.arrays["creating"][a.rows()].any()
        return creation_patience(a.patience) if creating else a.patience

    def _pulse(self) -> list[bytes]:
        """A value that changes from game to game; patience starts over with each."""
        a = self.assignment
        names = ("busy", "creating", "episode", "taken")
        return [a.arrays[name][a.rows()].tobytes() for name in names]

    def _fault(self, lost: Lost) -> Fault:
        """The fault of the game that was being stepped, with the process's last stderr."""
        assert self.process, "it was never started"
        a = self.assignment
        busy = [game for game in a.games if a.arrays["busy"][game]]
        game = busy[0] if busy else a.games.start
        for name in ("busy", "creating"):
            a.arrays[name][a.rows()] = False
        episode = int(a.arrays["episode"][game])
        step = int(a.arrays["taken"][game])
        seed = seed_of(a.seed, game, episode)
        report = f"{lost}\n{self.process.stderr_tail()}"
        return Fault(a.env.name, game, episode, seed, step, report)

    def _end(self, *grace: float) -> None:
        self.ordered = []
        if self.process:
            self.process.end(*grace)
            self.process = None

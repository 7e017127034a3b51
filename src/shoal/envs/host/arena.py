"""Many games on the host, stepped by workers (`workers.py`) that write into shared memory.

The shared memory is a file without a name, which vanishes when no process has it open.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from ...types import View
from .faults import Fault
from .match import Hosted, TeamStep
from .parts import ALL, HALVES, part_of
from .shared import METRICS, reserve, room, shared
from .watched import never
from .workers import Assignment, LocalWorker, ProcessWorker, Worker

Picture = tuple[tuple[int, ...], str]  # shape, and bytes as `Table.render` packs them


class Alone:
    """Lets only one arena at a time have open games, for environments that can exist only once."""

    def __init__(self) -> None:
        self.arena: Arena | None = None

    def enter(self, arena: Arena) -> None:
        """Close the games of the arena that entered before."""
        if self.arena is not arena and self.arena is not None:
            self.arena.rest()
        self.arena = arena


def split(games: range, workers: int) -> list[range]:
    """The games of each worker: at least one each, as even as possible."""
    parts = max(min(workers, len(games)), 1)
    bounds = np.linspace(games.start, games.stop, parts + 1).astype(int).tolist()
    return [range(low, high) for low, high in pairwise(bounds)]


class Arena:
    """`games` games of an environment, stepped together or by halves.

    They run in this process, or in `workers` processes, each created by `worker`. With `rows`, only
    these games are played: the others are played elsewhere. Each half has one half of every
    worker's games.
    """

    def __init__(
        self,
        env: Hosted,
        games: int,
        seed: int,
        workers: int = 0,
        patience: float = 60.0,
        halted: Callable[[], bool] = never,
        alone: Alone | None = None,
        worker: Callable[[Assignment], Worker] = ProcessWorker,
        rows: range | None = None,
    ):
        self.env = env
        self.games = games
        self.halted = halted
        self.alone = alone
        self.memory = reserve(room(env.teams, games, env.metrics))
        self.arrays = shared(self.memory, env.teams, games, env.metrics)  # see `shared.layout`
        self.cut = np.zeros(games, bool)  # episodes that are broken off
        shares = split(range(games) if rows is None else rows, workers)  # of each worker
        # rows of the games of each part, as an index; all are also those played elsewhere
        self.rows: dict[int, Any] = {ALL: slice(None)}
        # without workers, and where a worker has one game, halves would gain nothing
        if workers and min(map(len, shares)) > 1:
            for half in HALVES:
                self.rows[half] = np.concatenate([part_of(share, half) for share in shares])
        self.workers: list[Worker] = []
        try:
            for share in shares:
                assignment = Assignment(
                    env, share, games, seed, self.arrays, self.memory, patience, self._is_halted
                )
                self.workers.append(worker(assignment) if workers else LocalWorker(assignment))
                self.workers[-1].start()
        except BaseException:  # also on Ctrl-C: no one else can close the started workers
            self.close()
            raise

    def step(self, actions: dict[str, np.ndarray] | None = None) -> list[Fault]:
        """Step every game, or open its next episode; return the faults."""
        self.go(ALL, actions)
        return self.wait(ALL)

    def go(self, part: int, actions: dict[str, np.ndarray] | None = None) -> None:
        """Start a step of a part's games, by their rows of the actions `[B,…]`."""
        if self.alone:
            self.alone.enter(self)
        rows = self.rows[part]
        for team, action in (actions or {}).items():
            self.arrays[f"{team}/action"][rows] = action[rows]
        for worker in self.workers:
            worker.go(part)

    def wait(self, part: int) -> list[Fault]:
        """Wait for the step of a part's games; return the faults."""
        faults = [fault for worker in self.workers for fault in worker.wait(part)]
        rows = self.rows[part]
        self.arrays["broken"][rows] |= self.cut[rows]
        self.cut[rows] = False
        return faults

    def render(self, shown: np.ndarray) -> dict[int, Picture]:
        """Pictures of the games marked in `shown [B]`, by game."""
        self.arrays["shown"][:] = shown
        return {
            game: (tuple(shape), packed)
            for worker in self.workers
            for game, shape, packed in worker.render()
        }

    def renew(self, episode: int | np.ndarray = 0) -> None:
        """Break off every episode; the next step opens the one after `episode` in every game."""
        self.cut[:] = True
        self.arrays["over"][:] = True
        self.arrays["episode"][:] = episode

    def rest(self) -> None:
        """Close all games and break off their episodes; the next step opens new ones."""
        self.cut |= (self.arrays["episode"] > 0) & ~self.arrays["over"]
        for worker in self.workers:
            worker.close()

    def views(self) -> dict[str, View]:
        """Current view of every team: the arrays themselves, which the next step overwrites."""
        common = {name: self.arrays[name] for name in ("state", "first")}
        own = {
            team: {name: self.arrays[f"{team}/{name}"] for name in TeamStep._fields}
            for team in self.env.teams
        }
        return {
            team: View(**common, **arrays)  # type: ignore[arg-type]
            for team, arrays in own.items()
        }

    def metrics(self) -> dict[str, np.ndarray]:
        """`[B]` by metric, of each game's last finished episode; the next step overwrites it."""
        names = enumerate(self.env.metrics)
        return {name: self.arrays[METRICS][:, place] for place, name in names}

    def close(self) -> None:
        """End all workers and free the memory."""
        for worker in self.workers:
            worker.dismiss()
        for worker in self.workers:
            worker.close()
        self.workers = []
        if self.alone and self.alone.arena is self:
            self.alone.arena = None
        self.arrays = {}  # the last references to the memory
        self.memory.close()

    def _is_halted(self) -> bool:
        return self.halted()  # looked up at each call, because evaluations replace `halted`

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

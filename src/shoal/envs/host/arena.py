"""Many games on the host at once: in this process, or in worker processes that write into shared
memory.

Workers (`watched.py`) are told by a byte to step and answer with a line. The shared memory is a
file without a name: it is gone when the last process that has it open is.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from itertools import pairwise
from typing import IO, Any

import numpy as np

from ...errors import ShoalError
from ...types import View
from .faults import Fault, TooManyFaults
from .match import Hosted, TeamStep, to_json
from .shared import METRICS, room, shared
from .table import TRIES, Table, seed_of
from .watched import Lost, Watched, making, never

FAST = "/dev/shm"  # memory that looks like a folder
# what a folder says that takes no more
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.ENOMEM)
Picture = tuple[tuple[int, ...], str]  # its shape, and its bytes as `Table.draw` packs them


class Alone:
    """Lets only one arena at a time have its games open, where an environment may exist only
    once."""

    def __init__(self) -> None:
        self.arena: Arena | None = None

    def enter(self, arena: Arena) -> None:
        """Close the games of whoever was here before."""
        if self.arena is not arena and self.arena is not None:
            self.arena.rest()
        self.arena = arena


class Arena:
    """`games` games of an environment, stepped together."""

    def __init__(
        self,
        env: Hosted,
        games: int,
        seed: int,
        workers: int = 0,
        patience: float = 60.0,
        halted: Callable[[], bool] = never,
        alone: Alone | None = None,
    ):
        self.env = env
        self.games = games
        self.halted = halted
        self.alone = alone
        self.memory = reserve(room(env.teams, games, env.metrics))
        self.arrays = shared(self.memory, env.teams, games, env.metrics)  # see `host.layout`
        self.cut = np.zeros(games, bool)  # episodes that are not to go on
        self.crews: list[Any] = (
            [] if workers else [Here(Table(env, self.arrays, range(games), seed))]
        )
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
        if self.alone:
            self.alone.enter(self)
        for team, action in (actions or {}).items():
            self.arrays[f"{team}/action"][:] = action
        for crew in self.crews:
            crew.go()
        faults = [fault for crew in self.crews for fault in crew.wait()]
        self.arrays["broken"] |= self.cut
        self.cut[:] = False
        return faults

    def draw(self, shown: np.ndarray) -> dict[int, Picture]:
        """Pictures of those games, `shown [B]`, by game."""
        self.arrays["shown"][:] = shown
        return {
            game: (tuple(shape), packed)
            for crew in self.crews
            for game, shape, packed in crew.draw()
        }

    def renew(self, episode: int | np.ndarray = 0) -> None:
        """The next step opens every game anew with the episode after that; the one under way breaks
        off."""
        self.cut[:] = True
        self.arrays["over"][:] = True
        self.arrays["episode"][:] = episode

    def rest(self) -> None:
        """Close all games; the next step opens new episodes, and those under way break off."""
        self.cut |= (self.arrays["episode"] > 0) & ~self.arrays["over"]
        for crew in self.crews:
            crew.close()

    def views(self) -> dict[str, View]:
        """What every team sees now: the arrays themselves, which the next step overwrites."""
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
        """`[B]` by metric: what was said of each game's last episode, once it is over: likewise."""
        names = enumerate(self.env.metrics)
        return {name: self.arrays[METRICS][:, place] for place, name in names}

    def close(self) -> None:
        """End every process and give the memory back."""
        for crew in self.crews:
            crew.leave()
        for crew in self.crews:
            crew.close()
        self.crews = []
        if self.alone and self.alone.arena is self:
            self.alone.arena = None
        self.arrays = {}  # the last that holds the memory
        self.memory.close()

    def __enter__(self) -> Arena:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def reserve(size: int) -> IO[bytes]:
    """A file without a name that has room for so many bytes, in memory if there is enough; all
    zeros."""
    folders = [*([FAST] if os.path.isdir(FAST) else []), tempfile.gettempdir()]
    for folder in folders:
        memory = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 open until the arena is closed
        try:
            memory.truncate(size)
            # else a full folder would end us when it is written to
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(memory.fileno(), 0, size)
            return memory
        except OSError as error:
            memory.close()
            if error.errno not in FULL:
                raise
    raise ShoalError(
        f"the games need {size / 1e6:.3g} MB that their processes share, and"
        f" {' and '.join(folders)} have no room for"
        " them: lower games or eval_episodes, or set TMPDIR to a folder that has"
    )


class Here:
    """A crew in this process."""

    def __init__(self, table: Table):
        self.table = table

    def go(self) -> None:
        """Nothing goes on meanwhile."""

    def wait(self) -> list[Fault]:
        return self.table.step()

    def draw(self) -> list:
        return self.table.draw()

    def leave(self) -> None:
        """It cannot be left alone."""

    def close(self) -> None:
        self.table.close()


class Worker:
    """A crew in a process of its own. One that dies or hangs is started anew, and the episodes it
    played are lost."""

    def __init__(self, arena: Arena, part: range, seed: int, patience: float):
        self.arena = arena
        self.part = part
        self.seed = seed
        self.patience = patience
        self.under_way = np.zeros(len(part), bool)  # episodes that would be lost
        self.process: Watched | None = None  # once it has started
        self.ready = False

    @property
    def games(self) -> slice:
        return slice(self.part.start, self.part.stop)

    def start(self) -> Watched:
        """Start the process; it says when it is ready."""
        env = self.arena.env
        memory = self.arena.memory.fileno()
        about = {
            "task": "play",
            "env": env.name,
            "options": env.options,
            "teams": to_json(env.teams),
            "metrics": env.metrics,
            "draws": env.draws,
            "games": self.arena.games,
            "part": [self.part.start, self.part.stop],
            "seed": self.seed,
            "memory": memory,
        }
        self.ready = False
        self.process = Watched(about, [memory])
        return self.process

    def go(self) -> None:
        """Tell it to step."""
        arrays = self.arena.arrays
        self.under_way = (arrays["episode"][self.games] > 0) & ~arrays["over"][self.games]
        (self.process or self.start()).order(b"g")

    def wait(self) -> list[Fault]:
        """Its faults of this step."""
        faults: list[Fault] = []
        for _ in range(TRIES):
            try:
                answer = [Fault(*fault) for fault in self._answer()]
            except Lost as lost:
                faults.append(self._lost(lost))
                self._end(0.0)
                self.start().order(b"g")
                continue
            if faults:
                self.arena.arrays["broken"][self.games] |= self.under_way
            return faults + answer
        raise TooManyFaults(
            f"a worker process was lost {TRIES} times in a row, the last time", faults[-1]
        )

    def draw(self) -> list:
        """What its games look like now."""
        assert self.process, "its games are not open"
        self.process.order(b"d")
        try:
            return self._answer()
        except Lost as lost:
            raise TooManyFaults("a match cannot be drawn", self._lost(lost)) from None

    def leave(self) -> None:
        """Let it close its games while others do."""
        if self.process:
            self.process.leave()

    def close(self) -> None:
        self._end()

    def _answer(self) -> Any:
        """What it answers to an order."""
        assert self.process, "it was never started"
        if not self.ready:
            self.process.ready(self.arena.halted)
            self.ready = True
        return self.process.answer(self._patience, self._pulse, self.arena.halted)

    def _patience(self) -> float:
        """Seconds that what it does just now may take."""
        return (
            making(self.patience)
            if self.arena.arrays["making"][self.games].any()
            else self.patience
        )

    def _pulse(self) -> list[bytes]:
        """Changes as it goes from game to game: it may be silent for so long with each of them."""
        return [
            self.arena.arrays[name][self.games].tobytes()
            for name in ("busy", "making", "episode", "taken")
        ]

    def _lost(self, lost: Lost) -> Fault:
        """The game that was being stepped, and all that its process said."""
        assert self.process, "it was never started"
        arrays = self.arena.arrays
        busy = [game for game in self.part if arrays["busy"][game]]
        game = busy[0] if busy else self.part.start
        for name in ("busy", "making"):
            arrays[name][self.games] = False
        episode = int(arrays["episode"][game])
        step = int(arrays["taken"][game])
        about = (game, episode, seed_of(self.seed, game, episode), step)
        return Fault(self.arena.env.name, *about, f"{lost}\n{self.process.said()}")

    def _end(self, *grace: float) -> None:
        if self.process:
            self.process.end(*grace)
            self.process = None

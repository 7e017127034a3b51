"""Several seeds in one program, for an accelerator: a step of all costs it hardly more than a step
of one.

Every run is driven by a thread of its own, as if it were alone, with its own folder, logs and
checkpoints. Only to train do they meet: the last to arrive moves all of them by one call of a
program that has an axis of seeds.
"""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from ..config.config import Config
from ..engine.loop import Loop, Metrics
from ..errors import ShoalError
from ..monitor.console import Console
from ..run.signals import Stop
from ..run.trainer import Trainer
from ..store import checkpoint
from ..store.folder import console
from ..types import TrainState
from .live_table import LiveTable
from .processes import LOOK_EVERY, clear, finished
from .progress import FAILED, FINISHED, STOPPED, Outcome


def work(configs: Sequence[Config], quiet: bool = False) -> dict[Path, Outcome]:
    """As `group.work`: configs that differ in their seed and name alone."""
    runs = {Path(config.settings.out) / config.settings.name: config for config in configs}
    outcomes = {
        path: Outcome(FINISHED)
        for path, config in runs.items()
        if finished(path, config.settings.steps)
    }
    meeting = SeedBarrier(len(runs) - len(outcomes))
    left = [path for path in runs if path not in outcomes]
    members = {path: SeedTrainer(runs[path], meeting, place) for place, path in enumerate(left)}
    threads = {
        path: threading.Thread(target=_drive, args=(members[path], path, outcomes), daemon=True)
        for path in left
    }
    for thread in threads.values():
        thread.start()
    with Asked([member.stop for member in members.values()]), LiveTable(list(runs), quiet) as board:
        while running := [path for path, thread in threads.items() if thread.is_alive()]:
            board.show(running, outcomes)
            time.sleep(LOOK_EVERY)
        board.show([], outcomes)
    return {path: outcomes[path] for path in runs}


def _drive(member: SeedTrainer, path: Path, outcomes: dict[Path, Outcome]) -> None:
    """One run to its end."""
    try:
        if any(checkpoint.places(path)):
            result = member.resume(path)
        else:
            clear(path)
            result = member.run()
        outcomes[path] = (
            Outcome(STOPPED, code=128 + result.stopped) if result.stopped else Outcome(FINISHED)
        )
    except KeyboardInterrupt:
        outcomes[path] = Outcome(STOPPED, code=128 + member.stop.signal)
    except ShoalError as error:
        outcomes[path] = Outcome(FAILED, str(error), error.exit_code)
    except Exception as error:
        console(path).write_text(traceback.format_exc())
        outcomes[path] = Outcome(FAILED, f"{type(error).__name__}: {error}", 1)
    finally:
        member.meeting.leave()


class Asked(Stop):
    """Passes on what it notes."""

    def __init__(self, others: list[Stop]):
        super().__init__()
        self.others = others

    def _keep(self, number: int, frame: Any) -> None:
        super()._keep(number, frame)
        for other in self.others:
            other.signal = number
            other.from_outside = True


def program(loop: Loop, iterations: int) -> Any:
    """As `Loop.program`, of states with an axis of seeds in front."""
    specs = jax.tree.map(lambda spec: PartitionSpec(None, *spec), loop.specs)
    shardings = jax.tree.map(lambda spec: NamedSharding(loop.mesh, spec), specs)
    body = jax.shard_map(
        jax.vmap(partial(loop._run, iterations)),
        mesh=loop.mesh,
        in_specs=(specs,),
        out_specs=(specs, PartitionSpec()),
        check_vma=False,
    )
    everywhere = NamedSharding(loop.mesh, PartitionSpec())
    return jax.jit(
        body, donate_argnums=0, in_shardings=(shardings,), out_shardings=(shardings, everywhere)
    )


class SeedBarrier:
    """Where the threads of some runs wait for each other. The place of one that left is moved on,
    for nobody."""

    def __init__(self, parties: int):
        self.change = threading.Condition()
        self.here = parties
        self.rounds = 0
        self.arrived: dict[int, TrainState] = {}
        self.states: dict[int, TrainState] = {}  # as each place last came with it
        self.program: Any = None  # compiled
        self.moved: list[Any] = []
        self.parties = parties

    def prepare(self, loop: Loop, state: TrainState, iterations: int) -> None:
        """The program of all, made by whoever comes first."""
        with self.change:
            shapes = jax.tree.map(
                lambda x: jax.ShapeDtypeStruct((self.parties, *x.shape), x.dtype), state
            )
            self.program = self.program or program(loop, iterations).lower(shapes).compile()

    def move(self, place: int, state: TrainState) -> tuple[TrainState, Metrics]:
        """`state` after one call."""
        with self.change:
            self.arrived[place] = self.states[place] = state
            round_ = self.rounds
            self._go_if_all_are_here()
            while self.rounds == round_:
                self.change.wait()
            moved = self.moved[place]
        if isinstance(moved, Exception):
            raise moved
        return moved

    def leave(self) -> None:
        """One fewer to wait for."""
        with self.change:
            self.here -= 1
            self._go_if_all_are_here()

    def _go_if_all_are_here(self) -> None:
        if not self.arrived or len(self.arrived) < self.here:
            return
        anyone = next(iter(self.arrived.values()))
        places = range(self.parties)
        try:
            self.moved = _apart(
                self.program(_stacked([self.states.get(place, anyone) for place in places]))
            )
        except Exception as error:  # each of them must hear of it
            self.moved = [error] * self.parties
        self.arrived = {}
        self.rounds = self.rounds + 1
        self.change.notify_all()


@jax.jit
def _stacked(states: list[TrainState]) -> TrainState:
    return jax.tree.map(lambda *x: jnp.stack(x), *states)


@jax.jit
def _apart(stacked: Any) -> list[Any]:
    return [
        jax.tree.map(itemgetter(place), stacked)
        for place in range(len(jax.tree.leaves(stacked)[0]))
    ]


@dataclass(eq=False)
class BarrierLoop(Loop):
    """A loop that moves when all of them do."""

    meeting: SeedBarrier | None = None
    place: int = 0

    def compile(
        self, state: TrainState, iterations: int
    ) -> Callable[[TrainState], tuple[TrainState, Metrics | None]]:
        assert self.meeting
        self.meeting.prepare(self, state, iterations)
        return partial(self.meeting.move, self.place)


class SeedTrainer(Trainer):
    """One of the runs."""

    def __init__(self, config: Config, meeting: SeedBarrier, place: int):
        self.meeting = meeting
        self.place = place
        super().__init__(config, Console(quiet=True))

    def _loop(self) -> Loop:
        c = self.config
        s = self.config.settings
        return BarrierLoop(
            c.game, c.algorithms, s.games, s.window, s.steps, c.devices, self.meeting, self.place
        )

"""Several seeds in one program: on an accelerator, a step of all costs hardly more than a step of
one.

Each run has its own thread, folder, logs and checkpoints. Only training is shared: the last thread
to arrive calls a program with an axis of seeds for all of them.
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
from ..store.folder import console, finished
from ..types import TrainState
from .live_table import LiveTable
from .progress import FAILED, FINISHED, STOPPED, Outcome
from .runner import Status, clear
from .scheduler import LOOK_EVERY


def work(configs: Sequence[Config], quiet: bool = False) -> dict[Path, Outcome]:
    """Like `scheduler.work`, for configs that differ only in seed and name."""
    runs = {Path(config.settings.out) / config.settings.name: config for config in configs}
    outcomes = {
        path: Outcome(FINISHED)
        for path, config in runs.items()
        if finished(path, config.settings.steps)
    }
    barrier = SeedBarrier(len(runs) - len(outcomes))
    left = [path for path in runs if path not in outcomes]
    members = {path: SeedTrainer(runs[path], barrier, row) for row, path in enumerate(left)}
    threads = {
        path: threading.Thread(target=_drive, args=(members[path], path, outcomes), daemon=True)
        for path in left
    }
    for thread in threads.values():
        thread.start()
    stop = ForwardingStop([member.stop for member in members.values()])
    with stop, LiveTable(list(runs), quiet) as table:
        while running := [path for path, thread in threads.items() if thread.is_alive()]:
            statuses = {p: Status(progress=table.followers[p].progress()) for p in running}
            table.show(statuses, outcomes)
            time.sleep(LOOK_EVERY)
        table.show({}, outcomes)
    return {path: outcomes[path] for path in runs}


def _drive(member: SeedTrainer, path: Path, outcomes: dict[Path, Outcome]) -> None:
    """Train one run to its end."""
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
        console(path).write_text(traceback.format_exc(), "utf-8")
        outcomes[path] = Outcome(FAILED, f"{type(error).__name__}: {error}", 1)
    finally:
        member.barrier.leave()


class ForwardingStop(Stop):
    """A `Stop` that forwards its signal to the `Stop` of every seed's run."""

    def __init__(self, others: list[Stop]):
        super().__init__()
        self.others = others

    def _keep(self, number: int, frame: Any) -> None:
        super()._keep(number, frame)
        for other in self.others:
            other.signal = number
            other.from_outside = True


def program(loop: Loop, iterations: int) -> Any:
    """Like `Loop.program`, for states with a leading axis of seeds."""
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
    """Lets the threads of all runs wait for each other, to train together.

    A run that left keeps its row; its results are dropped."""

    def __init__(self, parties: int):
        self.change = threading.Condition()
        self.here = parties
        self.rounds = 0
        self.arrived: dict[int, TrainState] = {}
        self.states: dict[int, TrainState] = {}  # newest state of each row
        self.program: Any = None  # compiled
        self.moved: list[Any] = []
        self.parties = parties

    def prepare(self, loop: Loop, state: TrainState, iterations: int) -> None:
        """Compile the program of all seeds, once."""
        with self.change:
            shapes = jax.tree.map(
                lambda x: jax.ShapeDtypeStruct((self.parties, *x.shape), x.dtype), state
            )
            self.program = self.program or program(loop, iterations).lower(shapes).compile()

    def move(self, row: int, state: TrainState) -> tuple[TrainState, Metrics]:
        """Train every seed by one call; return the new state of this row."""
        with self.change:
            self.arrived[row] = self.states[row] = state
            round_ = self.rounds
            self._go_if_all_are_here()
            while self.rounds == round_:
                self.change.wait()
            moved = self.moved[row]
        if isinstance(moved, Exception):
            raise moved
        return moved

    def leave(self) -> None:
        """Let the others go on without this run."""
        with self.change:
            self.here -= 1
            self._go_if_all_are_here()

    def _go_if_all_are_here(self) -> None:
        if not self.arrived or len(self.arrived) < self.here:
            return
        anyone = next(iter(self.arrived.values()))
        rows = range(self.parties)
        try:
            self.moved = _apart(
                self.program(_stacked([self.states.get(row, anyone) for row in rows]))
            )
        except Exception as error:  # every run must raise it
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
        jax.tree.map(itemgetter(row), stacked) for row in range(len(jax.tree.leaves(stacked)[0]))
    ]


@dataclass(eq=False)
class BarrierLoop(Loop):
    """A `Loop` whose call waits for all seeds."""

    barrier: SeedBarrier | None = None
    row: int = 0

    def compile(
        self, state: TrainState, iterations: int
    ) -> Callable[[TrainState], tuple[TrainState, Metrics | None]]:
        assert self.barrier
        self.barrier.prepare(self, state, iterations)
        return partial(self.barrier.move, self.row)


class SeedTrainer(Trainer):
    """Trains one seed, in step with the others."""

    def __init__(self, config: Config, barrier: SeedBarrier, row: int):
        self.barrier = barrier
        self.row = row
        super().__init__(config, Console(quiet=True))

    def _loop(self) -> Loop:
        c = self.config
        s = self.config.settings
        return BarrierLoop(
            c.game, c.algorithms, s.games, s.window, s.steps, c.devices, self.barrier, self.row
        )

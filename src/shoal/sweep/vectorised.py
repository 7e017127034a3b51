"""Several runs in one program: on an accelerator, a step of all costs hardly more than a step of
one.

Each run has its own thread, folder, logs and checkpoints. Only training is shared: the last thread
to arrive calls a program with an axis of runs for all of them. They may differ in their seeds, and
in numbers of their algorithms, such as a learning rate, which the program then takes as arrays.
"""

from __future__ import annotations

import copy
import dataclasses
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
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from ..algorithms.base import Algorithm
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

Numbers = dict[str, dict[str, Any]]  # by team and option; of each run, a float32
OWN = ("seed", "name", "out")  # settings that runs may differ in


def work(configs: Sequence[Config], quiet: bool = False) -> dict[Path, Outcome]:
    """Like `scheduler.work`, for configs that differ only in seed, name and `numbers`."""
    runs = {Path(config.settings.out) / config.settings.name: config for config in configs}
    outcomes = {
        path: Outcome(FINISHED)
        for path, config in runs.items()
        if finished(path, config.settings.steps)
    }
    left = [path for path in runs if path not in outcomes]
    barrier = SeedBarrier(len(left), numbers([runs[path] for path in left]))
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
            other.arrived = self.arrived


def numbers(configs: Sequence[Config]) -> Numbers:
    """The numbers `[R]` of algorithms in which R configs differ; refuses what is no number."""
    found: Numbers = {}
    for team in configs[0].teams if configs else ():
        each = [config.teams[team][1] for config in configs]
        for name in sorted({name for own in each for name in _differing(each[0], own)}):
            values = [getattr(own, name) for own in each]
            if not all(type(value) is float for value in values):
                raise _unfit(name)
            found.setdefault(team, {})[name] = np.array(values, np.float32)
    for config in configs:
        for name in _differing(configs[0].settings, config.settings):
            if name not in OWN:
                raise _unfit(name)
        if config.to_json()["env"] != configs[0].to_json()["env"] or _names(config) != _names(
            configs[0]
        ):
            raise _unfit("games or algorithms")
    return found


def _names(config: Config) -> list[str]:
    return [name for name, _ in config.teams.values()]


def _differing(one: Any, other: Any) -> list[str]:
    """Fields of two configs with different values."""
    names = (field.name for field in dataclasses.fields(one))
    return [name for name in names if getattr(one, name) != getattr(other, name)]


def _unfit(name: str) -> ShoalError:
    return ShoalError(
        f"runs that differ in {name} are different programs: train them side by side, or vary"
        f" numbers alone, such as lr"
    )


def check(configs: Sequence[Config]) -> None:
    """Raise if configs cannot be trained in one program."""
    config = configs[0]
    if config.hosted:
        raise ShoalError(
            f"games of {config.env!r} run outside the compiled program: train side by side"
        )
    s = config.settings
    loop = Loop(config.game, config.algorithms, s.games, s.window, s.steps, config.devices)
    found = numbers(configs)
    try:
        jax.eval_shape(
            program(loop, 1), _rows(loop.template(0), len(configs)), np.float32(1), found
        )
    except (jax.errors.ConcretizationTypeError, TypeError):
        raise _unfit(" or ".join(name for own in found.values() for name in own)) from None


def _rows(state: TrainState, runs: int) -> TrainState:
    """Shapes of the states of several runs."""
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct((runs, *x.shape), x.dtype), state)


def _run_with(
    loop: Loop, iterations: int, steps: Any, state: TrainState, own: Numbers
) -> tuple[TrainState, Metrics]:
    """`Loop._run` with steps and numbers that are inputs of the program."""
    made = copy.copy(loop)
    made.steps = steps
    made.algorithms = {
        team: _with(algorithm, own.get(team, {})) for team, algorithm in loop.algorithms.items()
    }
    return made._run(iterations, state)


def _with(algorithm: Algorithm, own: dict[str, Any]) -> Algorithm:
    """An algorithm made anew with such numbers in its config, which was checked without them."""
    if not own:
        return algorithm
    config = copy.copy(algorithm.config)
    for name, value in own.items():
        object.__setattr__(config, name, value)
    return type(algorithm)(config, algorithm.spec)


def program(loop: Loop, iterations: int) -> Any:
    """Like `Loop.program`, for states with a leading axis of runs, the steps of a run, and
    `numbers` of each."""

    def every(state: TrainState, steps: Any, own: Numbers) -> tuple[TrainState, Metrics]:
        return jax.vmap(partial(_run_with, loop, iterations, steps))(state, own)

    same = PartitionSpec()
    specs = jax.tree.map(lambda spec: PartitionSpec(None, *spec), loop.specs)
    ins = (specs, same, same)
    outs = (specs, same)
    body = jax.shard_map(every, mesh=loop.mesh, in_specs=ins, out_specs=outs, check_vma=False)
    placed = jax.tree.map(lambda spec: NamedSharding(loop.mesh, spec), (ins, outs))
    return jax.jit(body, donate_argnums=0, in_shardings=placed[0], out_shardings=placed[1])


class SeedBarrier:
    """Lets the threads of all runs wait for each other, to train together.

    A run that left keeps its row; its results are dropped."""

    def __init__(self, parties: int, numbers: Numbers):
        self.change = threading.Condition()
        self.numbers = numbers
        self.here = parties
        self.rounds = 0
        self.arrived: dict[int, TrainState] = {}
        self.states: dict[int, TrainState] = {}  # newest state of each row
        self.program: Any = None  # compiled
        self.moved: list[Any] = []
        self.parties = parties

    def prepare(self, loop: Loop, state: TrainState, iterations: int) -> None:
        """Compile the program of all runs, once."""
        with self.change:
            if not self.program:
                given = (np.float32(loop.steps), self.numbers)
                shapes = _rows(state, self.parties)
                made = program(loop, iterations).lower(shapes, *given).compile()
                self.program = lambda states: made(states, *given)

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

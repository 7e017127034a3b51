"""Drives the loop: compile, train, evaluate before, during and after training, save, stop
cleanly."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import jax

from .. import peers
from ..config.config import Config
from ..config.trust import NOTHING, Trust
from ..engine import sizing
from ..engine.episodes import Episodes
from ..engine.loop import Loop
from ..engine.waiting import awaited, in_thread
from ..envs.host.arena import Alone
from ..envs.host.watched import Halted, never
from ..errors import ShoalError
from ..files import errors_name
from ..monitor import curve
from ..monitor.builtin import builtin, users
from ..monitor.callbacks import Callback, Hooks, LiveRun
from ..monitor.console import Console
from ..monitor.diagnosis import cause
from ..monitor.metrics import Diverged, RunMetrics
from ..monitor.notebook import shown
from ..monitor.sinks import Log
from ..store import checkpoint, folder, policy_store, start
from ..store.best import BestPolicy
from ..store.records import BestAbout, CheckpointAbout, RunProtocol
from ..store.summary import Result, write_failure
from ..types import TrainState
from . import resuming
from .evaluations import Evaluations
from .introduction import introduce
from .loops import loop_of
from .result import result_of
from .signals import Stop

GRACE = 5.0  # seconds for the last evaluations of a run that a signal stopped


def train(config: Config, quiet: bool = False, callbacks: Sequence[Callback] = ()) -> Result:
    """Train a run from the beginning."""
    return Trainer(config, shown(quiet), callbacks).run()


def resume(
    path: Path,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
    trust: Trust = NOTHING,
    steps: int = 0,
) -> Result:
    """Resume an interrupted run, or extend any run to `steps` in all."""
    config = resuming.config_of(path, trust, steps)
    with errors_name(path / folder.CONFIG):
        trainer = Trainer(config, shown(quiet), callbacks)
    return trainer.resume(path)


class Trainer:
    """One run in progress."""

    state: TrainState  # the newest; older ones are donated
    metrics: RunMetrics
    best: BestPolicy

    def __init__(self, config: Config, console: Console, callbacks: Sequence[Callback] = ()):
        s = config.settings
        self.config = config
        self.console = console
        self.stop = Stop()
        self.saved = -1  # steps at the last checkpoint
        self.unevaluated = False  # whether the checkpoint it goes on from still needs an evaluation
        self.result: Result | None = None  # set once it is written
        self.start: start.Start | None = None
        self.hooks = Hooks(builtin(config), [*users(config), *callbacks])
        self.alone = Alone() if s.alone else None
        self.loop = self._loop()
        self.evaluations = Evaluations(config, self.alone, console.say)
        self.due = [s.steps * k / (s.evaluations + 1) for k in range(1, s.evaluations + 1)]

    def run(self) -> Result:
        """Train from the beginning, in a new folder."""
        with folder.claimed(self.config) as path:
            self._introduce(path)
            with self._in_progress():
                program, before = self._prepare()
                folder.create(path, self.config, {"start": self.start.about} if self.start else {})
                with self._failure_recorded(path), folder.locked(path):
                    return self._open(path, program, before)

    def _begin_anew(self, path: Path) -> Result:
        """Train from the beginning, in the folder of a run that has no checkpoint."""
        self.console.say(f"{path} has no checkpoint yet: it begins anew")
        self._introduce(path)
        program, before = self._prepare()
        with self._failure_recorded(path):
            folder.clear(path)
            return self._open(path, program, before)

    def _open(self, path: Path, program: Any, before: Episodes) -> Result:
        """Open the log, record the first evaluation, and train."""
        with Log(path, metrics=self.config.metrics) as log:
            self._attend(path, log)
            self._record_evaluation(before, self._learners())
            return self._to_the_end(program)

    def resume(self, path: Path) -> Result:
        """Go on from the newest intact checkpoint, or from the beginning if there is none.

        The config may have more steps than the folder's."""
        s = self.config.settings
        with folder.locked(path), self._in_progress():
            totals = folder.totals(path)
            if resuming.unbegun(path):
                folder.extend(path, s.steps, 0)
                return self._begin_anew(path)
            saved = resuming.read(path, self.config, self.loop.template(s.seed), totals)
            self.saved = steps = saved.about["steps"]
            self.due = [step for step in self.due if step > steps]
            self.unevaluated = saved.unevaluated(s.steps)
            for sentence in saved.sentences(path, self.config, totals[0]):
                self.console.say(sentence)
            with self.console.waiting("compiling the training program"):
                self.state = self.loop.restored(saved.state)
                with self._compiling(self.state) as compiled:
                    program = self._awaited(compiled)
            with (
                self._failure_recorded(path, steps, saved.about["seconds"]),
                Log(path, saved.about["logs"], steps, self.config.metrics) as log,
            ):
                folder.remove_results(path)
                folder.extend(path, s.steps, steps)
                self._attend(path, log, steps, saved.about["seconds"])
                self.metrics.history = saved.history
                if saved.best:
                    self.best.restore(saved.best, saved.best_learners)
                return self._to_the_end(program)

    @contextlib.contextmanager
    def _failure_recorded(self, path: Path, steps: int = 0, seconds: float = 0.0) -> Iterator[None]:
        """Write a summary if an error ends the run inside, unless its result is written.

        `steps` and `seconds` are those at the start."""
        try:
            yield
        except BaseException as error:
            if hasattr(self, "metrics"):
                steps = self.metrics.run.steps
                seconds = self.metrics.run.seconds
            if self.result is None:
                write_failure(path, error, steps, seconds)
            raise

    @contextlib.contextmanager
    def _in_progress(self) -> Iterator[None]:
        """Catch signals; at the end, close games and callbacks."""
        closing = contextlib.closing
        with self.stop, closing(self.hooks), closing(self.loop), closing(self.evaluations):
            yield

    def _attend(self, path: Path, log: Log, steps: int = 0, seconds: float = 0.0) -> None:
        """Make the run's metrics and best-policy record."""
        run = LiveRun(path, self.config, log, self._learners, self.stop.ask, steps, seconds)
        self.hooks.sinks = [log, self.console]
        self.metrics = RunMetrics(run, self.hooks)
        self.best = BestPolicy(path, self.config)

    @property
    def path(self) -> Path:
        return self.metrics.run.path

    @property
    def steps(self) -> int:
        return self.metrics.run.steps

    @property
    def failure(self) -> ShoalError | None:
        """Why the run cannot go on: an error of the games or of a callback."""
        return self.loop.failure or self.hooks.failure

    def _to_the_end(self, program: Any) -> Result:
        """Train, save and evaluate; then raise the failure of callbacks or games, if any."""
        with contextlib.closing(
            checkpoint.CheckpointWriter(self.path, self.config.settings.keep)
        ) as writer:
            self._save(writer)  # from here on the run can be resumed
            if self.unevaluated:
                self._evaluate_during()
            self._train(program, writer)
            self._save(writer)
            self._written(writer)
        learners = self._learners()
        policy_store.save(self.path / folder.POLICY, self.config, learners, self.steps)
        if self.failure:
            raise self.failure
        result = self._finish(learners)
        self.hooks.call("on_end", self.metrics.run, result)
        if self.failure:
            raise self.failure
        if self.stop.signal == signal.SIGINT:
            raise KeyboardInterrupt  # all is written; end a loop over runs, too
        return result

    def _loop(self) -> Loop:
        return loop_of(self.config, self._halted, self.alone)

    def _halted(self) -> bool:
        return bool(self.stop.signal)

    def _introduce(self, path: Path) -> None:
        """Tell what will be trained, and read the weights that it starts from."""
        introduce(self.config, self.loop, path, self.console.say)
        if self.config.settings.from_run:
            self.start = start.begin(self.config, self.loop.learners(self.config.settings.seed))
            for sentence in self.start.sentences:
                self.console.say(sentence)

    def _prepare(self) -> tuple[Any, Episodes]:
        """Make the opening state; return the compiled program and an evaluation before training."""
        apart = not self.config.hosted and not peers.several()  # games that open in a thread
        with self.console.waiting("compiling the training program"):
            opened = None if apart else self._opened(never)
            template = opened or self.loop.template(self.config.settings.seed)
            with self._compiling(template) as compiled:
                self.state = opened or self._opened(self._halted)
                before = self.evaluations.policies(self._learners(), 0, self._halted)
                program = self._awaited(compiled)
        return program, before

    @contextlib.contextmanager
    def _compiling(self, state: TrainState) -> Iterator[Future]:
        """Compile the training program in a thread."""
        pool = ThreadPoolExecutor(1)
        try:
            yield pool.submit(
                self.loop.compile, state, sizing.iterations(self.config, state.learners)
            )
        finally:
            pool.shutdown(wait=False)  # do not wait for the compiler

    def _awaited(self, compiled: Future) -> Any:
        """The compiled program, unless the run is to stop: nothing was trained, nothing is
        written."""
        program = awaited(compiled, self._halted)
        if self.stop.signal:
            raise KeyboardInterrupt
        return program

    def _opened(self, halted: Callable[[], bool]) -> TrainState:
        """The state before the first step, with the weights of the run to start from."""
        state = in_thread(self.loop.init, self.config.settings.seed, halted=halted)
        return self.loop.with_learners(state, self.start.learners) if self.start else state

    def _train(self, program: Any, writer: checkpoint.CheckpointWriter) -> None:
        s = self.config.settings
        every = s.save_every or max(s.steps // 10, 1)
        with self.console.training(s.steps):
            while self.steps < s.steps and not self.stop.signal and not self.failure:
                fresh = self._call(program)
                if self.due and self.due[0] <= self.steps < s.steps and not self.failure:
                    self.due = [step for step in self.due if step > self.steps]
                    self._evaluate_during()
                if writer.idle:
                    self._written(writer)
                if self.steps // every > (self.steps - fresh) // every and self.steps < s.steps:
                    self._save(writer)

    def _call(self, program: Any) -> int:
        """Call the program once; return the steps it made."""
        began = time.monotonic()
        self.state, metrics = program(self.state)
        metrics = jax.device_get(metrics)
        spent = time.monotonic() - began
        self._forward_faults()
        if metrics is None:  # the first iteration failed
            return 0
        broke = {"faults": float(len(self.loop.faults)), "dropped": float(len(self.loop.dropped))}
        try:
            return self.metrics.iteration(metrics, spent, broke if self.loop.faults else {})
        except Diverged as error:
            before = self.metrics.history.points[0].played
            views = self.loop.fetch(self.state, ["views"]).views
            raise Diverged(f"{error}: {cause(self.config, views, before)}") from None

    def _save(self, writer: checkpoint.CheckpointWriter) -> None:
        """Write a checkpoint, unless the last one has the same step."""
        best = self.best.evaluation
        run = self.metrics.run
        if self.saved == run.steps:
            return
        self._written(writer)
        about: CheckpointAbout = {
            "steps": run.steps,
            "seconds": run.seconds,
            "logs": run.log.marks(),
            "best": BestAbout(**best._asdict()) if best else None,
            "config": self.config.to_json(),
            "protocol": self.protocol,
        }
        writer.save(self.loop.fetch(self.state), about, self.best.learners)
        self.saved = run.steps

    def _written(self, writer: checkpoint.CheckpointWriter) -> None:
        """Wait for the checkpoint being written, and call `on_checkpoint`."""
        path = writer.settle()
        if path:
            self.hooks.call("on_checkpoint", self.metrics.run, path)

    @cached_property
    def protocol(self) -> RunProtocol:
        return folder.protocol(self.config)

    def _evaluate_during(self) -> None:
        """Evaluate during training; skipped while stopping. A failure ends the run."""
        learners = self._learners()
        try:
            played = self.evaluations.policies(learners, self.steps, self._halted)
        except Halted:
            return
        except ShoalError as error:
            self.loop.failure = error
            return
        self._record_evaluation(played, learners)

    def _learners(self) -> dict:
        """Learners on the host, so that evaluation and the saved policy use the same arrays."""
        return jax.device_get(self.state.learners)

    def _record_evaluation(self, played: Episodes, learners: dict) -> None:
        self._forward_faults()
        better = self.best.consider(self.steps, played, learners)
        self.metrics.evaluation(played, better)

    def _forward_faults(self) -> None:
        """Pass on new faults of games on the host."""
        self.metrics.faults("training", self.loop.faults)
        self.metrics.faults("evaluation", self.evaluations.faults)

    def _finish(self, learners: dict) -> Result:
        """Evaluate, play at random, draw the curve, write the summary."""
        run = self.metrics.run
        random = self._final_evaluations(learners)
        final = self._final_episodes(learners)
        title = f"{self.config.label} on {self.config.env}, seed {self.config.settings.seed}"
        history = self.metrics.history
        curve.draw(run.path / folder.CURVE, title, history.points, history.training, random)
        result = result_of(run, history, self.best.evaluation, self.stop, random, final)
        result.write()
        self.result = result
        return result

    def _final_evaluations(self, learners: dict) -> Episodes | None:
        """The last evaluation, then random play, which is returned.

        Both take at most GRACE seconds if a signal stopped the run, or from one that comes
        meanwhile."""
        if self.stop.signal:
            self.console.say(f"stopping early at {self.steps:,} steps, as asked: all is saved")
        began = time.monotonic()

        def late() -> bool:
            return time.monotonic() > max(began, self.stop.arrived) + GRACE

        try:
            if self.metrics.history.points[-1].step < self.steps:  # none at this step yet
                played = self.evaluations.policies(learners, self.steps, late)
                self._record_evaluation(played, learners)
            return self.evaluations.random(late)
        except Halted:
            last = self.metrics.history.points[-1].step
            self.console.say(
                f"evaluations are left out after {GRACE:g} s: scores are those at {last:,} steps"
            )
            return None

    def _final_episodes(self, learners: dict) -> Episodes | None:
        """Play the `final_episodes`; none if the run was stopped."""
        episodes = self.config.settings.final_episodes
        if not episodes or self.stop.signal:
            return None
        with (
            self.console.waiting(f"playing {episodes:,} greedy episodes"),
            contextlib.suppress(Halted),
        ):
            return self.evaluations.final(learners, self.steps, self._halted)

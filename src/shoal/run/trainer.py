"""Driving the loop: compile, train, evaluate before, during and after, save, stop cleanly."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .. import __version__, algorithms
from ..config.config import Config
from ..config.trust import NOTHING, Trust, needed
from ..devices import room
from ..engine import sizing
from ..engine.episodes import Episodes
from ..engine.evaluate import evaluator
from ..engine.host_loop import HostLoop
from ..engine.loop import Loop
from ..envs.host.arena import Alone
from ..envs.host.watched import Halted, never
from ..errors import ShoalError
from ..monitor import curve
from ..monitor.builtin import builtin, own
from ..monitor.callbacks import Callback, Hooks, Run
from ..monitor.console import Console
from ..monitor.diagnosis import cause
from ..monitor.metrics import Diverged, RunMetrics
from ..monitor.sinks import Log
from ..store import checkpoint, folder, policy_store, start
from ..store.best import BestPolicy
from ..store.metrics_file import read
from ..store.policy_store import Best
from ..store.records import BestAbout, CheckpointAbout, RunProtocol
from ..store.summary import Result, stopped_by, write_failure
from ..types import TrainState
from .signals import Stop

GRACE = 5.0  # seconds that the last evaluations of a run may take that was told to stop


def train(config: Config, quiet: bool = False, callbacks: Sequence[Callback] = ()) -> Result:
    """Run it."""
    return Trainer(config, Console(quiet), callbacks).run()


def resume(
    path: Path,
    quiet: bool = False,
    callbacks: Sequence[Callback] = (),
    trust: Trust = NOTHING,
    steps: int = 0,
) -> Result:
    """Go on with a run that was interrupted, or train any further: for so many `steps` in all."""
    config = folder.config_of(path, trust)
    if steps and steps != config.settings.steps:
        refuse_fewer(path, steps)
        config = replace(config, settings=replace(config.settings, steps=steps))
    elif folder.finished(path):
        raise ShoalError(
            f"{path} is finished: there is nothing to resume (more steps than it has,"
            f" shoal resume {path} --steps <steps>, train it further)"
        )
    return Trainer(config, Console(quiet), callbacks).resume(path)


def refuse_fewer(path: Path, steps: int) -> None:
    """A run cannot be trained for fewer steps than it has."""
    done = checkpoint.done(path)
    if steps <= done:
        raise ShoalError(
            f"{path} has been trained for {done:,} steps already: ask for more than that,"
            f" not {steps:,}"
        )


def rescaled(done: int, before: int, total: int) -> str:
    """What other steps in all do to schedules, in a sentence."""
    return (
        f"trained for {total:,} steps in all instead of {before:,}: what changes over the whole"
        f" run, such as an annealed learning rate, now stands at {min(done / total, 1):.0%} of it,"
        f" not at {min(done / before, 1):.0%}; what counts steps, such as exploration, goes on"
    )


class Trainer:
    """One run under way."""

    state: TrainState  # the newest; the one before it is gone
    notes: RunMetrics
    best: BestPolicy

    def __init__(self, config: Config, display: Console, callbacks: Sequence[Callback] = ()):
        s = config.settings
        self.config = config
        self.display = display
        self.stop = Stop()
        self.saved = -1  # steps at the last checkpoint
        self.unseen = False  # whether what it goes on from has yet to be evaluated
        self.start: start.Start | None = None
        self.hooks = Hooks(builtin(config), [*own(config), *callbacks])
        self.alone = Alone() if s.alone else None
        self.loop = self._loop()
        self.evaluator = self._evaluator(config.algorithms, s.greedy)
        self.due = [s.steps * k / (s.evaluations + 1) for k in range(1, s.evaluations + 1)]

    def run(self) -> Result:
        """From the beginning."""
        with folder.claimed(self.config) as path:
            self._introduce(path)
            with self._held():
                program, before = self._prepare()
                folder.create(path, self.config, self.start and self.start.about)
                with folder.locked(path):
                    return self._open(path, program, before)

    def _open(self, path: Path, program: Any, before: Episodes) -> Result:
        """The first line of the log, and all that follows."""
        with Log(path, metrics=self.config.metrics) as log:
            self._attend(path, log)
            self._note_evaluation(before, self._learners())
            return self._go(program)

    def _begin_anew(self, path: Path) -> Result:
        """In the folder of a run that ended before anything of it was saved."""
        self.display.say(f"{path} has no checkpoint yet: it begins anew")
        self._introduce(path)
        program, before = self._prepare()
        folder.emptied(path)
        return self._open(path, program, before)

    def resume(self, path: Path) -> Result:
        """From the newest checkpoint that is whole; from the beginning if there never was one. To
        more steps than the folder says, if that is what the config does."""
        with folder.locked(path), self._held():
            totals = folder.totals(path)
            if folder.unbegun(path):
                self._take_total(path, totals[0], 0)
                return self._begin_anew(path)
            state, about, wrong = checkpoint.newest(
                path, self.loop.template(self.config.settings.seed)
            )
            for sentence in wrong:
                self.display.say(f"{sentence}; using the one before")
            self._refuse_another(path, about, totals)
            self.saved = steps = about["steps"]
            self.due = [step for step in self.due if step > steps]
            self._say_where(path, steps, totals[0])
            with self.display.waiting("compiling the training program"):
                self.state = self.loop.restored(state)
                program = self.loop.compile(
                    self.state, sizing.iterations(self.config, self._learners())
                )
            with Log(path, about["logs"], steps, self.config.metrics) as log:
                folder.remove_results(path)
                self._take_total(path, totals[0], steps)
                self._attend(path, log)
                self._remember(path, about)
                return self._go(program)

    def _say_where(self, path: Path, steps: int, total: int) -> None:
        """Where a run goes on, and what is then not as it was."""
        now = self.config.settings.steps
        self.display.say(f"resuming {path} at {steps:,} of {now:,} steps")
        if now != total:
            self.display.say(rescaled(steps, total, now))
        if self.config.hosted:
            self.display.say(
                "its games begin new episodes, as an environment on the host cannot be saved"
            )

    def _take_total(self, path: Path, total: int, done: int) -> None:
        """Let the folder say for how many steps the run is trained, if that is new."""
        if self.config.settings.steps != total:
            folder.extend(path, self.config.settings.steps, done)

    def _remember(self, path: Path, about: CheckpointAbout) -> None:
        """What the run had told until its checkpoint."""
        steps = about["steps"]
        self.notes.run.steps = steps
        self.notes.run.seconds = about["seconds"]
        self.notes.history = read(path, self.config.sides, self.config.metrics)
        if about["best"]:
            like = policy_store.acting(self.config, self._learners())
            best = checkpoint.best(checkpoint.place(path, steps), like)
            self.best.restore(Best(**about["best"]), best)
        # the last evaluation of a run comes after its last checkpoint, and was cut off with the log
        ended = 0 < _total(about) <= steps < self.config.settings.steps
        self.unseen = ended and self.notes.history.points[-1].step < steps

    def _refuse_another(self, path: Path, about: CheckpointAbout, totals: list[int]) -> None:
        """What decides a run is what it was begun with, but for the steps that it has in all."""
        now = self.config.to_json()
        now["settings"]["steps"] = _total(about) if _total(about) in totals else totals[0]
        other = folder.difference(about.get("config"), now)
        if other:
            raise ShoalError(
                f"{path / folder.CONFIG} says {other} as in its checkpoint: put it back, or"
                f" begin another run with"
                f" shoal train {path / folder.CONFIG}"
            )

    @contextlib.contextmanager
    def _held(self) -> Iterator[None]:
        """Signals, games and callbacks, for the length of the run."""
        closing = contextlib.closing
        with self.stop, closing(self.hooks), closing(self.loop), closing(self.evaluator):
            yield

    def _attend(self, path: Path, log: Log) -> None:
        """Begin to take notes."""
        self.notes = RunMetrics(
            Run(path, self.config, log, self._learners, self.stop.ask), self.display, self.hooks
        )
        self.best = BestPolicy(path, self.config)

    @property
    def path(self) -> Path:
        return self.notes.run.path

    @property
    def steps(self) -> int:
        return self.notes.run.steps

    @property
    def failure(self) -> ShoalError | None:
        """Why it cannot go on: the games', or a callback's."""
        return self.loop.failure or self.hooks.failure

    def _go(self, program: Any) -> Result:
        """Train on to the end; the summary says how it ended, whatever ended it."""
        try:
            return self._to_the_end(program)
        except BaseException as error:
            write_failure(self.path, error, self.steps, self.notes.run.seconds)
            raise

    def _to_the_end(self, program: Any) -> Result:
        """Train, save, evaluate."""
        with contextlib.closing(
            checkpoint.CheckpointWriter(self.path, self.config.settings.keep)
        ) as keeper:
            self._save(keeper)  # from here on nothing is lost
            if self.unseen:
                self._look()
            self._train(program, keeper)
            self._save(keeper)
            self._written(keeper)
        learners = self._learners()
        policy_store.save(self.path / folder.POLICY, self.config, learners, self.steps)
        if self.failure:
            raise self.failure
        result = self._finish(learners)
        self.hooks.call("on_end", self.notes.run, result)
        if self.failure:
            raise self.failure
        if self.stop.signal == signal.SIGINT:
            raise KeyboardInterrupt  # all is written; whoever goes on from run to run shall not
        return result

    def _loop(self) -> Loop:
        c = self.config
        s = self.config.settings
        parts = (c.game, c.algorithms, s.games, s.window, s.steps, c.devices)
        if not c.hosted:
            return Loop(*parts)
        return HostLoop(*parts, c.workers, s.patience, s.tolerance, self._halted, self.alone)

    def _halted(self) -> bool:
        return bool(self.stop.signal)

    def _evaluator(self, players: dict, greedy: bool) -> Any:
        c = self.config
        s = self.config.settings
        return evaluator(
            c.game, players, s.eval_episodes, greedy, c.workers, s, self.alone, self.display.say
        )

    def _introduce(self, path: Path) -> None:
        s = self.config.settings
        c = self.config
        device = f"{c.devices} {jax.devices()[0].platform} device{'s' * (c.devices > 1)}"
        self.display.say(
            f"shoal {__version__}: {c.label} on {c.env}, seed {s.seed}, {device}, into {path}"
        )
        sizes = self.loop.sizes()
        for team, facts in folder.protocol(c)["teams"].items():
            agents = self.config.sides[team].n
            keeps = f", memory {sizing.readable(sizes[team])}" if sizes[team] > 1e6 else ""
            self.display.say(
                f"team {team}: {agents} agent{'s' * (agents > 1)} play"
                f" {c.algorithms[team].name}, reward"
                f" {facts['reward']}, each step enters {facts['updates_per_step']:g} gradient"
                f" update(s){keeps}"
            )
        sizing.check_memory(sum(sizes.values()), room(c.devices))
        nets = sum(np.size(leaf) * 4 for leaf in jax.tree.leaves(self.loop.learners(0)))
        size = sum(sizes.values()) + 2 * nets  # those now, and the best
        if size > 1e6:
            self.display.say(f"checkpoints of about {sizing.readable(size)}, {s.keep} kept")
        sizing.check_disk(path, size, s.keep)
        if s.from_run:
            self.start = start.begin(c, self.loop.learners(s.seed))
            for sentence in self.start.told:
                self.display.say(sentence)

    def _prepare(self) -> tuple[Any, Episodes]:
        """The opening state; the compiled program and the scores before any training."""
        pool = ThreadPoolExecutor(1)
        try:
            with self.display.waiting("compiling the training program"):
                self.state = self._started(self.loop.init(self.config.settings.seed))
                learners = self._learners()
                compiled = pool.submit(
                    self.loop.compile, self.state, sizing.iterations(self.config, learners)
                )
                before = self._evaluate(learners, 0, self._halted)
                program = compiled.result()
        finally:
            pool.shutdown(wait=False)  # of a compiler nobody waits for
        if self.stop.signal:
            raise KeyboardInterrupt  # nothing was trained, nothing is written
        return program, before

    def _started(self, state: TrainState) -> TrainState:
        """An opening state, with the weights of the run that this one starts from."""
        if not self.start:
            return state
        places = jax.tree.map(lambda leaf: leaf.sharding, state.learners)
        return state._replace(learners=jax.device_put(self.start.learners, places))

    def _train(self, program: Any, keeper: checkpoint.CheckpointWriter) -> None:
        s = self.config.settings
        every = s.save_every or max(s.steps // 10, 1)
        with self.display.training(s.steps):
            while self.steps < s.steps and not self.stop.signal and not self.failure:
                fresh = self._call(program)
                if self.due and self.due[0] <= self.steps < s.steps and not self.failure:
                    self.due = [step for step in self.due if step > self.steps]
                    self._look()
                if keeper.idle:
                    self._written(keeper)
                if self.steps // every > (self.steps - fresh) // every and self.steps < s.steps:
                    self._save(keeper)

    def _call(self, program: Any) -> int:
        """Some iterations; the steps they made."""
        began = time.monotonic()
        self.state, metrics = program(self.state)
        metrics = jax.device_get(metrics)
        spent = time.monotonic() - began
        self._note_faults()
        if metrics is None:  # the first of the iterations failed
            return 0
        broke = {"faults": float(len(self.loop.faults)), "dropped": float(len(self.loop.dropped))}
        try:
            return self.notes.metrics(metrics, spent, broke if self.loop.faults else {})
        except Diverged as error:
            before = self.notes.history.points[0].played
            raise Diverged(
                f"{error}: {cause(self.config, jax.device_get(self.state.views), before)}"
            ) from None

    def _save(self, keeper: checkpoint.CheckpointWriter) -> None:
        """A checkpoint, unless the last one is of this very step: it could not be replaced in one
        go."""
        best = self.best.best
        run = self.notes.run
        if self.saved == run.steps:
            return
        self._written(keeper)
        about: CheckpointAbout = {
            "steps": run.steps,
            "seconds": run.seconds,
            "logs": run.log.marks(),
            "best": BestAbout(**best._asdict()) if best else None,
            "config": self.config.to_json(),
            "protocol": self.protocol,
        }
        keeper.save(self.state, about, self.best.learners)
        self.saved = run.steps

    def _written(self, keeper: checkpoint.CheckpointWriter) -> None:
        """Tell of the checkpoint that is being written, once it is."""
        path = keeper.settle()
        if path:
            self.hooks.call("on_checkpoint", self.notes.run, path)

    @cached_property
    def protocol(self) -> RunProtocol:
        return folder.protocol(self.config)

    def _look(self) -> None:
        """An evaluation meanwhile: given up if the run is to end; one that cannot be played ends
        the run."""
        learners = self._learners()
        try:
            played = self._evaluate(learners, self.steps, self._halted)
        except Halted:
            return
        except ShoalError as error:
            self.loop.failure = error
            return
        self._note_evaluation(played, learners)

    def _learners(self) -> dict:
        """On the host: evaluation and the saved policy start from the same arrays."""
        return jax.device_get(self.state.learners)

    def _evaluate(self, learners: dict, steps: int, halted: Callable[[], bool] = never) -> Episodes:
        return self.evaluator(learners, self.config.settings.seed, self.config.clock(steps), halted)

    def _note_evaluation(self, played: Episodes, learners: dict) -> None:
        self._note_faults()
        better = self.best.consider(self.steps, played, learners)
        self.notes.evaluation(played, better)

    def _note_faults(self) -> None:
        """What broke on the host since the last time."""
        self.notes.faults("training", self.loop.faults)
        self.notes.faults("evaluation", self.evaluator.faults)

    def _finish(self, learners: dict) -> Result:
        """The last evaluation, the random level, the curve, the summary."""
        s = self.config.settings
        run = self.notes.run
        random = self._last_looks(learners)
        title = f"{self.config.label} on {self.config.env}, seed {s.seed}"
        history = self.notes.history
        curve.draw(run.path / folder.CURVE, title, history.points, history.training, random)
        result = Result(
            run.path,
            scores=history.points[-1].played.score(),
            before=history.before,
            random=random.score() if random else {},
            steps=run.steps,
            seconds=run.seconds,
            stopped=int(self.stop.signal),
            best=self.best.best,
            reason=stopped_by(int(self.stop.signal), self.stop.hasty),
            from_run=s.from_run,
            metrics=history.points[-1].played.means(),
            random_metrics=random.means() if random else {},
        )
        result.write()
        self._conclude(result)
        return result

    def _last_looks(self, learners: dict) -> Episodes | None:
        """The last evaluation, and how random play does; within GRACE seconds if somebody waits for
        the end."""
        if self.stop.signal:
            self.display.say(f"stopping early at {self.steps:,} steps, as asked: all is saved")
        until = time.monotonic() + (GRACE if self.stop.hasty else float("inf"))

        def late() -> bool:
            return time.monotonic() > until

        last = self.notes.history.points[-1].step
        guessers = {
            team: algorithms.random_policy(spec) for team, spec in self.config.sides.items()
        }
        try:
            if last < self.steps:  # it was not stopped at an evaluation
                self._note_evaluation(self._evaluate(learners, self.steps, late), learners)
            with contextlib.closing(self._evaluator(guessers, False)) as chance:
                return chance(
                    {team: () for team in guessers},
                    self.config.settings.seed,
                    self.config.clock(0),
                    late,
                )
        except Halted:
            last = self.notes.history.points[-1].step
            self.display.say(
                f"evaluations are left out after {GRACE:g} s: scores are those at {last:,} steps"
            )
            return None

    def _conclude(self, result: Result) -> None:
        say = self.display.say
        say(
            f"{result.steps:,} steps in {result.seconds:.1f} s:"
            f" {result.steps / max(result.seconds, 1e-9):,.0f} steps/s"
        )
        for team, score in result.scores.items():
            chance = f"random {result.random[team]:.2f}, " if result.random else ""
            say(f"team {team}: {chance}before {result.before[team]:.2f}, after {score:.2f}")
        for name, value in result.metrics.items():
            chance = f"random {result.random_metrics[name]:.2f}, " if result.random_metrics else ""
            say(f"{name}: {chance}after {value:.2f}")
        if result.best:
            best = result.best
            who = f"team {best.team}" if best.team in result.scores else best.team
            say(
                f"best: {who} {best.score:.2f} after {best.steps:,} steps:"
                f" {result.path / folder.BEST}"
            )
        say(f"policy: {result.path / folder.POLICY}   curve: {result.path / folder.CURVE}")
        flag = needed(self.config.to_json())
        if result.stopped:
            say(
                f"stopped before its {self.config.settings.steps:,} steps: shoal resume"
                f" {result.path}{flag} goes on"
            )
        elif flag:
            say(
                f"to play it again: shoal evaluate {result.path}{flag}, as the environment is"
                f" one's own"
            )


def _total(about: CheckpointAbout) -> int:
    """The steps that a run was trained for in all when a checkpoint of it was written."""
    return (about.get("config") or {}).get("settings", {}).get("steps", 0)

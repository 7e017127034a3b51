"""Driving the loop: compile, train, evaluate before, during and after, log, stop cleanly, save."""

from __future__ import annotations

import contextlib
import shutil
import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from . import __version__, algorithms, checkpoint, curve, runs
from .config import Config
from .devices import room
from .display import Display, named
from .envs.host import Fault
from .evaluate import Episodes, Halted, evaluator, never
from .hostloop import HostLoop
from .log import Log, read
from .loop import Loop
from .types import Clock, ShoalError, TrainState

WORK_PER_CALL = {"cpu": 2e10, "other": 1e12}  # multiplications of a device per call: around a second
UNITS = {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3}
LOG_POINTS = 50  # calls a run is cut into at least
HOSTED_POINTS = 200  # and about so many on the host, which can stop within a call


class Diverged(ShoalError):
    """A loss is no longer a number."""

    exit_code = 1


@dataclass(frozen=True)
class Result:
    """What a run left behind. Scores are mean returns of one agent, by team."""

    path: Path
    scores: dict[str, float]
    before: dict[str, float]
    random: dict[str, float]
    steps: int
    seconds: float  # of training alone
    stopped: int = 0  # the signal that ended it early


class Stop:
    """Notes the first Ctrl-C or SIGTERM instead of dying of it; the second one acts as usual."""

    def __init__(self) -> None:
        self.signal = 0
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            self.before = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        self.signal = number
        self.__exit__()


def train(config: Config, quiet: bool = False) -> Result:
    """Run it."""
    return Trainer(config, Display(quiet)).run()


def resume(path: Path, quiet: bool = False) -> Result:
    """Go on with a run that was interrupted."""
    config = runs.config_of(path)
    summary = path / runs.SUMMARY
    if summary.exists() and not runs.read_json(summary, "a run folder")["stopped"]:
        raise ShoalError(f"{path} is finished: there is nothing to resume")
    return Trainer(config, Display(quiet)).resume(path)


class Trainer:
    """One run under way."""

    def __init__(self, config: Config, display: Display):
        s = config.settings
        self.config, self.display = config, display
        self.stop = Stop()
        self.loop = self._loop()
        self.evaluator = self._evaluator(config.algorithms, s.greedy)
        self.due = [s.steps * k / (s.evaluations + 1) for k in range(1, s.evaluations + 1)]
        self.steps, self.seconds, self.told = 0, 0.0, {"": 0, "evaluation": 0}
        self.points: list[curve.Point] = []
        self.training: list[tuple[int, dict[str, float]]] = []

    def run(self) -> Result:
        """From the beginning."""
        path = runs.plan(self.config)
        self._introduce(path)
        with self.stop, contextlib.closing(self.loop), contextlib.closing(self.evaluator):
            state, program, before = self._prepare()
            if self.stop.signal:
                raise KeyboardInterrupt  # nothing was trained, nothing is written
            runs.create(path, self.config)
            with runs.held(path), Log(path) as log:
                self._note_evaluation(log, before)
                return self._go(path, state, program, log)

    def resume(self, path: Path) -> Result:
        """From the newest checkpoint that is whole."""
        with self.stop, runs.held(path), contextlib.closing(self.loop), contextlib.closing(self.evaluator):
            state, about, wrong = checkpoint.newest(path, self.loop.template(self.config.settings.seed))
            for sentence in wrong:
                self.display.say(f"{sentence}; using the one before")
            self.steps, self.seconds = about["steps"], about["seconds"]
            self.due = [step for step in self.due if step > self.steps]
            self.display.say(f"resuming {path} at {self.steps:,} of {self.config.settings.steps:,} steps")
            if self.config.hosted:
                self.display.say("its games begin new episodes, as an environment on the host cannot be saved")
            with self.display.waiting("compiling the training program"):
                state = self.loop.restored(state)
                program = self.loop.compile(state, self._iterations(self._learners(state)))
            with Log(path, about["logs"], self.steps) as log:
                self.points, self.training = read(path, self.config.game.teams)
                return self._go(path, state, program, log)

    def _go(self, path: Path, state: TrainState, program: Any, log: Log) -> Result:
        """Train on to the end, save, evaluate."""
        with contextlib.closing(checkpoint.Keeper(path, self.config.settings.keep)) as keeper:
            if not any(checkpoint.places(path)):
                self._save(keeper, state, log)  # from here on nothing is lost
            state = self._train(state, program, log, keeper)
            self._save(keeper, state, log)
        learners = self._learners(state)
        runs.save_policy(path, self.config, learners, self.steps)
        if self.loop.failure:
            raise self.loop.failure
        return self._finish(path, log, learners)

    def _loop(self) -> Loop:
        c, s = self.config, self.config.settings
        parts = (c.game, c.algorithms, s.games, s.window, s.steps, c.devices)
        if not c.hosted:
            return Loop(*parts)
        return HostLoop(*parts, c.workers, s.patience, s.tolerance, self._halted)

    def _halted(self) -> bool:
        return bool(self.stop.signal)

    def _evaluator(self, players: dict, greedy: bool) -> Any:
        c, s = self.config, self.config.settings
        return evaluator(c.game, players, s.eval_episodes, greedy, c.workers, s.patience)

    def _introduce(self, path: Path) -> None:
        s, c = self.config.settings, self.config
        device = f"{c.devices} {jax.devices()[0].platform} device{'s' * (c.devices > 1)}"
        self.display.say(f"shoal {__version__}: {c.label} on {c.env}, seed {s.seed}, {device}, into {path}")
        sizes = self.loop.sizes()
        for team, facts in runs.protocol(c)["teams"].items():
            agents = self.config.game.teams[team].n
            keeps = f", memory {readable(sizes[team])}" if sizes[team] > 1e6 else ""
            self.display.say(
                f"team {team}: {agents} agent{'s' * (agents > 1)} play {c.algorithms[team].name}, reward"
                f" {facts['reward']}, each step enters {facts['updates_per_step']:g} gradient update(s){keeps}"
            )
        _refuse_more_than(sum(sizes.values()), room(c.devices))
        nets = sum(np.size(leaf) * 4 for leaf in jax.tree.leaves(self.loop.learners(0)))
        self._reckon(path, sum(sizes.values()) + nets)

    def _reckon(self, path: Path, size: float) -> None:
        """What the checkpoints will take, and whether there is that much."""
        keep = self.config.settings.keep
        there = next(parent for parent in path.absolute().parents if parent.exists())
        if size > 1e6:
            self.display.say(f"checkpoints of about {readable(size)}, {keep} kept")
        free = shutil.disk_usage(there).free
        if size * (keep + 1) > free:
            raise ShoalError(
                f"{keep} checkpoints and one being written need {readable(size * (keep + 1))} of disk, but {there} has"
                f" {readable(free)}: lower capacity or keep, or choose another out"
            )

    def _prepare(self) -> tuple[TrainState, Any, Episodes]:
        """The opening state, the compiled program and the scores before any training."""
        with self.display.waiting("compiling the training program"), ThreadPoolExecutor(1) as pool:
            state = self.loop.init(self.config.settings.seed)
            learners = self._learners(state)
            compiled = pool.submit(self.loop.compile, state, self._iterations(learners))
            before = self._evaluate(learners, self._halted)  # here, as worker processes end with their thread
            return state, compiled.result(), before

    def _iterations(self, learners: dict) -> int:
        """Iterations per call: about a second's work, and enough calls to log and to stop at."""
        s = self.config.settings
        work = 1e5  # of the game itself, per step
        for team, algorithm in self.config.algorithms.items():
            weights = sum(np.size(leaf) for leaf in jax.tree.leaves(learners[team])) / 3  # Adam keeps two of each
            passes = (
                2 + 6 * algorithm.protocol(self.config.share)["updates_per_step"]
            )  # a gradient costs three forward passes
            work += weights * algorithm.spec.n * passes
        needed = -(-s.steps // (s.games * s.window))
        if self.config.hosted:
            return -(-needed // HOSTED_POINTS)
        speed = WORK_PER_CALL["cpu" if jax.default_backend() == "cpu" else "other"] * self.config.devices
        fitting = int(speed / (work * s.games * s.window))
        calls = -(-needed // max(fitting, 1))
        calls = min(max(calls, LOG_POINTS, s.evaluations + 1), needed)
        return -(-needed // calls)

    def _save(self, keeper: checkpoint.Keeper, state: TrainState, log: Log) -> None:
        keeper.save(state, {"steps": self.steps, "seconds": self.seconds, "logs": log.marks()})

    def _train(self, state: TrainState, program: Any, log: Log, keeper: checkpoint.Keeper) -> TrainState:
        s = self.config.settings
        every = s.save_every or max(s.steps // 10, 1)
        with self.display.training(s.steps):
            while self.steps < s.steps and not self.stop.signal and not self.loop.failure:
                start = time.monotonic()
                state, metrics = program(state)
                metrics = jax.device_get(metrics)
                spent = time.monotonic() - start
                if metrics:  # none, if the first of its iterations failed
                    self._note_metrics(log, metrics, spent)
                self._note_faults(log)
                if self.due and self.due[0] <= self.steps < s.steps and not self.loop.failure:
                    self.due = [step for step in self.due if step > self.steps]
                    self._look(log, state)
                if self.steps // every > (self.steps - self.fresh) // every and self.steps < s.steps:
                    self._save(keeper, state, log)
        return state

    def _look(self, log: Log, state: TrainState) -> None:
        """An evaluation meanwhile: given up if the run is to end; one that cannot be played ends the run."""
        try:
            self._note_evaluation(log, self._evaluate(self._learners(state), self._halted))
        except Halted:
            pass
        except ShoalError as error:
            self.loop.failure = error

    def _note_metrics(self, log: Log, metrics: dict, spent: float) -> None:
        self.fresh = fresh = int(metrics["steps"][-1]) - self.steps
        self.steps, self.seconds = self.steps + fresh, self.seconds + spent
        values = {
            f"{team}/{name}": value for team in self.config.algorithms for name, value in _means(metrics[team]).items()
        }
        ended = {name: float(series.sum()) for name, series in metrics["returns"].items()}
        episodes = ended.pop("episodes")
        returns = {team: value / episodes for team, value in ended.items()} if episodes else {}
        self.training += [(self.steps, returns)] if returns else []
        rate = fresh / spent
        speed = {"seconds": self.seconds, "steps_per_second": rate}
        values |= self._note_faults(log)
        log.point(self.steps, values | {f"{team}/return": value for team, value in returns.items()} | speed)
        wrong = [name for name, value in values.items() if not np.isfinite(value)]
        if wrong:
            raise Diverged(
                f"training diverged: {', '.join(wrong)} stopped being a number before step {self.steps}:"
                " try a smaller lr or max_grad_norm"
            )
        self.display.progress(self.steps, self.config.settings.steps, rate, returns)

    def _note_faults(self, log: Log) -> dict[str, float]:
        """What broke on the host since the last time, and how often anything has."""
        faults = self.loop.faults
        self._tell(log, "", faults)
        self._tell(log, "evaluation", self.evaluator.faults)
        return {"faults": float(len(faults)), "dropped": float(len(self.loop.dropped))} if faults else {}

    def _tell(self, log: Log, where: str, faults: list[Fault]) -> None:
        """Show the newest of those that were not told yet, and write all of them down."""
        fresh = faults[self.told[where] :]
        self.told[where] = len(faults)
        for fault in fresh:
            log.fault(fault)
        if fresh:
            more = f" (and {len(fresh) - 1} more)" if len(fresh) > 1 else ""
            what = (
                "an episode of the evaluation broke and was played again"
                if where
                else "an episode broke and was dropped"
            )
            self.display.say(f"{what}{more}: {fresh[-1]}")

    def _learners(self, state: TrainState) -> dict:
        """On the host: evaluation and the saved policy start from the same arrays."""
        return jax.device_get(state.learners)

    def _evaluate(self, learners: dict, halted: Callable[[], bool] = never) -> Episodes:
        return self.evaluator(learners, self.config.settings.seed, clock(self.config, self.steps), halted)

    def _note_evaluation(self, log: Log, played: Episodes) -> None:
        self._note_faults(log)
        self.points.append(curve.Point(self.steps, self.seconds, played))
        log.evaluation(self.steps, self.config.game.teams, played)
        values = {"evaluation/length": float(played.length.mean())}
        for team, rows in played.returns.items():
            values[f"evaluation/{team}/return"] = float(rows.mean())
            values[f"evaluation/{team}/deviation"] = float(rows.mean(1).std())
        log.point(self.steps, values | {"seconds": self.seconds})
        how = "greedy" if self.config.settings.greedy else "sampled"
        count = f"{len(played.length)} {how} episodes"
        self.display.say(f"evaluation at {self.steps:,} steps: {named(played.score())} (mean return, {count})")

    def _finish(self, path: Path, log: Log, learners: dict) -> Result:
        """The last evaluation, the random level, the curve, the summary."""
        s, game = self.config.settings, self.config.game
        if self.stop.signal:
            self.display.say(f"stopping early at {self.steps:,} steps, as asked")
        self._note_evaluation(log, self._evaluate(learners))
        guessers = {team: algorithms.chance(spec) for team, spec in game.teams.items()}
        nothing = {team: () for team in guessers}
        with contextlib.closing(self._evaluator(guessers, False)) as chance:
            random = chance(nothing, s.seed, clock(self.config, 0))
        title = f"{self.config.label} on {self.config.env}, seed {s.seed}"
        curve.draw(path / runs.CURVE, title, self.points, self.training, random)
        result = Result(
            path,
            scores=self.points[-1].played.score(),
            before=self.points[0].played.score(),
            random=random.score(),
            steps=self.steps,
            seconds=self.seconds,
            stopped=self.stop.signal,
        )
        facts = vars(result) | {"path": str(path), "steps_per_second": self.steps / max(self.seconds, 1e-9)}
        runs.write_json(path / runs.SUMMARY, facts)
        self._conclude(result)
        return result

    def _conclude(self, result: Result) -> None:
        say = self.display.say
        say(
            f"{result.steps:,} steps in {result.seconds:.1f} s: {result.steps / max(result.seconds, 1e-9):,.0f} steps/s"
        )
        for team, score in result.scores.items():
            say(f"team {team}: random {result.random[team]:.2f}, before {result.before[team]:.2f}, after {score:.2f}")
        say(f"policy: {result.path / runs.POLICY}   curve: {result.path / runs.CURVE}")


def _means(metrics: dict[str, np.ndarray]) -> dict[str, float]:
    """Over the iterations of a call; of an algorithm that says how many `updates` each made, over those."""
    updates = metrics.get("updates")
    if updates is None:
        return {name: float(series.mean()) for name, series in metrics.items()}
    if not updates.any():
        return {"updates": 0.0}
    means = {name: float((series * updates).sum() / updates.sum()) for name, series in metrics.items()}
    return means | {"updates": float(updates.sum())}


def readable(size: float) -> str:
    """`1.2 GB`."""
    unit = next((u for u in UNITS if size >= UNITS[u]), "bytes")
    return f"{size / UNITS.get(unit, 1):.3g} {unit}"


def _refuse_more_than(need: float, there: float) -> None:
    if need > there:
        raise ShoalError(f"the memories need {readable(need)}, but there are {readable(there)}: lower capacity")


def clock(config: Config, steps: int) -> Clock:
    """How far training had come after so many steps."""
    done = np.float32(steps)
    return Clock(done, np.float32(done / np.float32(config.settings.steps)))  # type: ignore[arg-type]

"""A search for settings: trials that Optuna chooses, each a normal run.

The study is on the disk after every step, so that the same call goes on with one that was
interrupted. Trials that do badly are stopped at an evaluation.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import files
from ..config import space as spaces
from ..config.campaign import Job
from ..config.settings import LOCAL
from ..config.space import Dimension
from ..config.trust import NOTHING, Trust
from ..report.search_results import Trial
from ..store import folder as runs
from .live_table import LiveTable
from .progress import FAILED, FINISHED, STOPPED, Outcome, Progress
from .scheduler import LOOK_EVERY, Scheduler, engine

STUDY = "study.log"  # Optuna's journal
TRIALS = "trials"  # subfolder of the runs
PRUNED = "pruned"
GRID = "grid"


@dataclass(frozen=True)
class Plan:
    """What to search, and how."""

    args: list[str]  # of `shoal train`, for every trial
    over: list[str]  # what is varied, as typed
    method: str = "tpe"
    pruner: str = "median"
    trials: int = 20
    seed: int = 0  # of the search
    judge: str = ""  # team or metric whose score counts
    evaluations: int = 10  # of each run
    cores: int = 1
    trust: Trust = field(default=NOTHING, compare=False)

    @property
    def space(self) -> list[Dimension]:
        return spaces.parse(self.over)


def search(
    plan: Plan, folder: Path, at_once: int = 0, cluster: str = LOCAL, quiet: bool = False
) -> tuple[list[Trial], bool]:
    """Run the trials that are left; return all, and whether a signal ended the search early."""
    study = _study(plan, folder)
    work = _Work(plan, folder, study)
    slots = [work.job(k, {}) for k in range(plan.trials)]
    with Scheduler(engine(cluster, at_once, slots), quiet) as scheduler:
        work.again(scheduler)
        with LiveTable([], quiet) as table:
            while work.more(scheduler) or scheduler.busy:
                scheduler.look()
                work.look(scheduler)
                table.show(scheduler.statuses, scheduler.outcomes)
                time.sleep(LOOK_EVERY * bool(scheduler.running))
            work.look(scheduler)
            table.show(scheduler.statuses, scheduler.outcomes)
    return work.ended(), bool(scheduler.signals)


class _Work:
    """The trials of a study on a scheduler."""

    def __init__(self, plan: Plan, folder: Path, study: Any):
        import optuna

        self.optuna = optuna
        self.states = optuna.trial.TrialState
        self.plan = plan
        self.folder = folder
        self.study = study
        self.open: dict[Path, Any] = {}  # trials whose end the study does not know yet
        self.reported: dict[Path, int] = {}  # evaluations so far
        self.messages: dict[int, str] = {}

    def job(self, number: int, values: dict[str, Any]) -> Job:
        path = self.folder / TRIALS / f"trial-{number:04d}"
        plan = self.plan
        return Job(path, [*plan.args, *spaces.flags(values)], plan.trust, cores=plan.cores)

    def again(self, scheduler: Scheduler) -> None:
        """Take up the trials that ran when an earlier call ended."""
        names = {one.name for one in self.plan.space}
        for frozen in self.study.get_trials(states=(self.states.RUNNING,)):
            if set(frozen.params) != names:  # it ended while this one was chosen
                self.study.tell(frozen.number, state=self.states.FAIL)
                continue
            self._add(self.optuna.trial.Trial(self.study, frozen._trial_id), scheduler)

    def more(self, scheduler: Scheduler) -> bool:
        """Begin trials while there is room; return whether there are more to come."""
        if scheduler.signals:
            return False
        while self._left() and not scheduler.waiting and scheduler.engine.free(self.job(0, {})):
            self._add(self.study.ask(spaces.distributions(self.plan.space)), scheduler)
            scheduler.look()
        return bool(self._left())

    def look(self, scheduler: Scheduler) -> None:
        """Report evaluations to the study, stop what does badly, and tell it what has ended."""
        for path, trial in list(self.open.items()):
            if path in scheduler.outcomes:
                self._tell(path, trial, scheduler.outcomes[path], path in scheduler.halted)
            elif path in scheduler.statuses:
                self._report(path, trial, scheduler)

    def ended(self) -> list[Trial]:
        """All trials that have ended."""
        words = {
            self.states.COMPLETE: FINISHED,
            self.states.PRUNED: PRUNED,
            self.states.FAIL: FAILED,
        }
        return [
            Trial(
                self.job(one.number, {}).path,
                one.params,
                words[one.state],
                one.value if one.value is not None else _last(one),
                self.messages.get(one.number, ""),
            )
            for one in self.study.get_trials()
            if one.state in words
        ]

    def _left(self) -> int:
        begun = [
            one for one in self.study.get_trials(deepcopy=False) if one.state != self.states.WAITING
        ]
        return self.plan.trials - len(begun)

    def _add(self, trial: Any, scheduler: Scheduler) -> None:
        job = self.job(trial.number, trial.params)
        self.open[job.path] = trial
        scheduler.waiting.append(job)

    def _report(self, path: Path, trial: Any, scheduler: Scheduler) -> None:
        now: Progress = scheduler.statuses[path].progress
        score = (now.scores | now.metrics).get(self.plan.judge)
        if score is None or now.evaluations <= self.reported.get(path, 0):
            return
        self.reported[path] = now.evaluations
        if now.evaluations not in trial.storage.get_trial(trial._trial_id).intermediate_values:
            trial.report(score, now.evaluations)
        if now.steps < now.total and trial.should_prune():
            scheduler.halt(path)

    def _tell(self, path: Path, trial: Any, outcome: Outcome, halted: bool) -> None:
        del self.open[path]
        if outcome.state == FINISHED:
            self.study.tell(trial, score_of(path, self.plan.judge))
        elif outcome.state == STOPPED and halted:
            self.study.tell(trial, state=self.states.PRUNED)
        elif outcome.state == FAILED:
            self.messages[trial.number] = outcome.message
            self.study.tell(trial, state=self.states.FAIL)


def score_of(path: Path, judge: str) -> float:
    """The final score of a run that has finished."""
    summary = files.read_json(path / runs.SUMMARY, "a finished run")
    return float((summary["scores"] | summary.get("metrics", {}))[judge])


def _last(frozen: Any) -> float | None:
    """The last score of a trial that was stopped."""
    values = frozen.intermediate_values
    return values[max(values)] if values else None


def _study(plan: Plan, folder: Path) -> Any:
    """The study on the disk, made if there is none."""
    optuna = spaces.load_optuna()
    from optuna.storages.journal import JournalFileBackend, JournalStorage

    storage = JournalStorage(JournalFileBackend(str(folder / STUDY)))
    study = optuna.create_study(
        storage=storage,
        sampler=_sampler(plan, optuna.samplers),
        pruner=_pruner(plan, optuna.pruners),
        study_name="shoal",
        direction="maximize",
        load_if_exists=True,
    )
    if plan.method == GRID and not study.get_trials(deepcopy=False):
        for values in spaces.grid(plan.space):
            study.enqueue_trial(values)
    return study


def _sampler(plan: Plan, samplers: Any) -> Any:
    if plan.method == "tpe":
        return samplers.TPESampler(seed=plan.seed, constant_liar=True)
    if plan.method == "qmc":
        return samplers.QMCSampler(seed=plan.seed, warn_asynchronous_seeding=False)
    return samplers.RandomSampler(seed=plan.seed)


def _pruner(plan: Plan, pruners: Any) -> Any:
    """A trial's resource is the number of its evaluations."""
    most = plan.evaluations + 1
    made = {
        "median": lambda: pruners.MedianPruner(n_startup_trials=4, n_warmup_steps=1),
        "halving": lambda: pruners.SuccessiveHalvingPruner(),
        "hyperband": lambda: pruners.HyperbandPruner(max_resource=most),
        "none": pruners.NopPruner,
    }
    return made[plan.pruner]()

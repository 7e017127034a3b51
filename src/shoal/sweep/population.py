"""Population-based training (Jaderberg et al., 2017, arXiv:1711.09846): members train side by side;
after each round the worst go on as forks of the best, with settings changed a little.

Every round of a member is a normal run, the fork of one of the round before. Members that differ in
numbers alone can train in one compiled program (`vectorised.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import files
from ..config import space as spaces
from ..config.arguments import changed, compose_arguments
from ..config.campaign import Job
from ..config.config import Config
from ..config.settings import LOCAL
from ..config.space import Dimension
from ..errors import ShoalError
from ..report.search_results import Trial
from ..run import forking
from ..store import folder as runs
from . import scheduler, vectorised
from .progress import FAILED, FINISHED, STOPPED
from .search import TRIALS, Plan, score_of

FILE = "population.json"
REPLACED = 0.25  # share of the members that are replaced after a round
FACTORS = (0.8, 1.25)  # by one of which a number changes
REDRAWN = 0.25  # chance that a value is drawn anew instead


@dataclass(frozen=True)
class Member:
    """A member in one round."""

    values: dict[str, Any]
    parent: int  # its number in the round before


def train(
    plan: Plan,
    folder: Path,
    members: int,
    rounds: int,
    steps: int,
    at_once: int = 0,
    cluster: str = LOCAL,
    quiet: bool = False,
    together: bool = False,
) -> tuple[list[Trial], bool]:
    """Train all rounds that are left; return the last, and whether a signal ended it early.

    `together` trains the members of a round in one compiled program."""
    history = _read(folder)
    trials: list[Trial] = []
    for number in range(rounds):
        if number == len(history):
            history.append(_next(plan, history, trials, members, number))
            _write(folder, history)
        until = steps * (number + 1) // rounds
        jobs = [
            _job(plan, folder, history, number, member, until)
            for member in range(len(history[number]))
        ]
        outcomes = (
            vectorised.work([_config(plan, job) for job in jobs], quiet)
            if together
            else scheduler.work(jobs, at_once, quiet, cluster)
        )
        states = [outcomes[job.path].state for job in jobs]
        if STOPPED in states:
            return trials, True
        trials = [
            _trial(plan, job, one, outcomes[job.path])
            for job, one in zip(jobs, history[number], strict=True)
        ]
        if FINISHED not in states:
            raise ShoalError(f"no member of the population could be trained: {trials[0].message}")
    return trials, False


def _next(
    plan: Plan, history: list[list[Member]], trials: list[Trial], members: int, number: int
) -> list[Member]:
    """The members of a round: the worst of the last one are replaced by changed copies of the
    best."""
    rng = np.random.default_rng([plan.seed, number])
    space = plan.space
    if not history:
        return [Member({one.name: one.draw(rng) for one in space}, k) for k in range(members)]
    count = max(round(REPLACED * len(trials)), 1)
    order = sorted(range(len(trials)), key=lambda k: _rank(trials[k]))
    kept = [Member(one.values, k) for k, one in enumerate(history[-1])]
    for worst in order[:count]:
        best = int(rng.choice(order[-count:]))
        if trials[best].score is not None:
            values = {one.name: _altered(one, kept[best].values, rng) for one in space}
            kept[worst] = Member(values, best)
    return kept


def _rank(trial: Trial) -> float:
    return float("-inf") if trial.score is None else trial.score


def _altered(one: Dimension, values: dict[str, Any], rng: np.random.Generator) -> Any:
    """A value changed a little, or drawn anew."""
    if rng.random() < REDRAWN:
        return one.draw(rng)
    if one.values:
        return values[one.name]
    return one.clamped(values[one.name] * float(rng.choice(FACTORS)))


def _job(
    plan: Plan, folder: Path, history: list[list[Member]], number: int, member: int, steps: int
) -> Job:
    """The run of a member in a round; from the second round on, the fork of its parent's."""
    path = _path(folder, number, member)
    one = history[number][member]
    words = [*plan.args, *spaces.flags(one.values), "--steps", str(steps)]
    if number and not path.exists():
        parent = _path(folder, number - 1, one.parent)
        _fork(parent, path, [*spaces.flags(one.values), "--steps", str(steps)], plan)
    return Job(path, words, plan.trust, steps, plan.cores)


def _config(plan: Plan, job: Job) -> Config:
    """The config of a member in a round: that of its folder, once it has one."""
    if job.path.exists():
        return runs.config_of(job.path, plan.trust)
    place = ["--out", str(job.path.parent), "--name", job.path.name]
    return compose_arguments([*job.args, *place], plan.trust, plan.trust)[0]


def _path(folder: Path, number: int, member: int) -> Path:
    return folder / TRIALS / f"round-{number:02d}-member-{member:02d}"


def _fork(parent: Path, path: Path, words: list[str], plan: Plan) -> None:
    if not runs.finished(parent):
        return  # it failed: its successor begins anew
    config = runs.config_of(parent, plan.trust)
    config = changed(config, words, "shoal sweep", "")
    settings = replace(config.settings, out=str(path.parent), name=path.name)
    forking.copy(forking.checkpoint_of(parent), path, replace(config, settings=settings))


def _trial(plan: Plan, job: Job, one: Member, outcome: Any) -> Trial:
    if outcome.state == FINISHED:
        return Trial(job.path, one.values, FINISHED, score_of(job.path, plan.judge))
    return Trial(job.path, one.values, FAILED, None, outcome.message)


def _read(folder: Path) -> list[list[Member]]:
    if not (folder / FILE).exists():
        return []
    content = files.read_json(folder / FILE, "a population's folder")
    return [[Member(**one) for one in members] for members in content["rounds"]]


def _write(folder: Path, history: list[list[Member]]) -> None:
    rounds = [[vars(one) for one in members] for members in history]
    files.write_json(folder / FILE, {"rounds": rounds})

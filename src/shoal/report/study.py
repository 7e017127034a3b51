"""Scores of many runs, by task and algorithm, on one grid of environment steps."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import algorithms
from ..envs.metrics import meant, split
from ..errors import ShoalError, did_you_mean
from ..store.records import RunProtocol
from .statistics import Strata


@dataclass(frozen=True)
class RunScores:
    """One run and its scores; `failure` says why it does not count, and is empty if it counts."""

    path: Path
    algorithm: str  # labels, as is `env`
    env: str
    seed: int
    config: dict[str, Any]  # as `campaign.plain` returns it
    failure: str = ""
    protocol: RunProtocol | None = None
    scores: dict[str, np.ndarray] | None = None  # team -> [grid], mean returns per agent
    late: int = 0  # most steps by which an evaluation was later than its place on the grid
    random: dict[str, float] | None = None  # returns of random play, by team
    steps: int = 0
    seconds: float = 0.0  # of training only
    # the environment's own metrics: [grid] by name, and those of random play
    metrics: dict[str, np.ndarray] = field(default_factory=dict)
    random_metrics: dict[str, float] = field(default_factory=dict)

    @property
    def grid(self) -> np.ndarray:
        """The environment steps of its planned evaluations."""
        s = self.config["settings"]
        return np.linspace(0, s["steps"], s["evaluations"] + 2)

    @property
    def learners(self) -> tuple[str, ...]:
        """The teams that learn."""
        return tuple(
            team
            for team, one in self.config["teams"].items()
            if one["algorithm"] not in algorithms.UNTRAINED
        )

    def final(self, team: str, word: str) -> float | None:
        """The last evaluation's value of a metric `word`: the team's, else the whole game's."""
        names = (f"{team}/{word}", word)
        return next((float(self.metrics[name][-1]) for name in names if name in self.metrics), None)


class Task(NamedTuple):
    """What a score refers to: a team of an environment, or the whole environment."""

    env: str
    team: str  # "" for the whole environment
    several: bool  # whether the environment has other teams

    @property
    def label(self) -> str:
        return f"{self.env}, {self.team}" if self.several else self.env


class Left(NamedTuple):
    """A run folder that is in no table, and why."""

    path: Path
    why: str


@dataclass(frozen=True)
class Study:
    """All runs, and how to score them."""

    runs: list[RunScores]
    scales: dict[str, list[float]]  # given by the user
    left: list[Left] = field(default_factory=list)  # run folders left out
    metric: str = ""  # the environments' metric used as score; "" for the return of one agent

    @cached_property
    def algorithms(self) -> list[str]:
        return list(dict.fromkeys(run.algorithm for run in self.runs))

    @cached_property
    def tasks(self) -> list[Task]:
        """Every team of every environment played; with a metric as score, only teams that have
        it."""
        if self.metric:
            found = dict.fromkeys((run.env, team) for run in self.runs for team in run.scores or ())
            return [Task(env, team, bool(team)) for env, team in found]
        teams = {run.env: list(run.config["teams"]) for run in self.runs}
        return [Task(env, team, len(sides) > 1) for env, sides in teams.items() for team in sides]

    @cached_property
    def words(self) -> list[str]:
        """Names of the environments' own metrics, without their team."""
        return list(dict.fromkeys(split(name)[1] for run in self.runs for name in run.metrics))

    @property
    def score(self) -> str:
        """Definition of a score, in words."""
        return self.metric or "return of one agent"

    def of(self, task: Task, algorithm: str, failed: bool = False) -> list[RunScores]:
        """Runs of an algorithm on a task: those with scores, or those that failed."""
        mine = [run for run in self.runs if (run.env, run.algorithm) == (task.env, algorithm)]
        return [run for run in mine if bool(run.failure) == failed]

    def scores(self, task: Task, algorithm: str) -> np.ndarray:
        """`[seeds,grid]` scores."""
        return np.array([run.scores[task.team] for run in self.of(task, algorithm) if run.scores])

    def random(self, task: Task) -> float:
        """Score of random play, over the evaluation games of all runs."""
        levels = [run.random[task.team] for run in self.runs if run.env == task.env and run.random]
        return float(np.mean(levels)) if levels else float("nan")

    def scale(self, task: Task) -> tuple[float, float]:
        """Scores that are normalised to 0 and 1: the user's, else random play and the best of any
        run."""
        given = self.scales.get(f"{task.env} {task.team}", self.scales.get(task.env))
        if given:
            return given[0], given[1]
        seen = [
            run.scores[task.team].max() for run in self.runs if run.env == task.env and run.scores
        ]
        return self.random(task), float(max(seen, default=float("nan")))

    @cached_property
    def comparable(self) -> list[Task]:
        """Tasks that enter aggregates: only this team learns, every algorithm has a run, and the
        scale is not empty.

        A score against a team that also learns says as much about that team.
        """
        return [task for task in self.tasks if not self.why_not(task)]

    def why_not(self, task: Task) -> str:
        """Why a task does not enter aggregates."""
        teams = {team for run in self.runs if run.env == task.env for team in run.learners}
        if teams != {task.team} and (task.team or len(teams) != 1):
            many = "other teams learn too, and a score says as much of them"
            return many if task.team in (*teams, "") else "this team does not learn"
        missing = [name for name in self.algorithms if not self.of(task, name)]
        if missing:
            return f"{', '.join(missing)} {'have' if len(missing) > 1 else 'has'} no finished run"
        low, high = self.scale(task)
        return "" if high > low else "no run did better than random play"

    def normalised(self, algorithm: str) -> Strata:
        """Final scores of every comparable task, `[seeds]` each, normalised by its scale."""
        strata = []
        for task in self.comparable:
            low, high = self.scale(task)
            strata.append((self.scores(task, algorithm)[:, -1] - low) / (high - low))
        return strata

    @property
    def failures(self) -> list[RunScores]:
        return [run for run in self.runs if run.failure]


def by_metric(study: Study, metric: str) -> Study:
    """The study with an environment metric as score, if one is named; leaves out runs without
    it."""
    if not metric or all(run.failure for run in study.runs):
        return study
    kept = []
    left = []
    for run in study.runs:
        names = meant(metric, run.metrics)
        if names:
            scores = {split(name)[0]: run.metrics[name] for name in names}
            random = {split(name)[0]: run.random_metrics.get(name, np.nan) for name in names}
            run = replace(run, scores=scores, random=random)
        if names or run.failure:
            kept.append(run)
        else:
            left.append(Left(run.path, f"it has no metric {metric!r}"))
    if not any(run.scores for run in kept):
        known = list(dict.fromkeys(name for run in study.runs for name in run.metrics))
        raise ShoalError(
            f"no run has the metric {metric!r}{did_you_mean(metric, known)}: they have"
            f" {', '.join(known) or 'none'}"
        )
    return Study(kept, {}, [*study.left, *left], metric)

"""What the runs of a campaign, or of any folder, left behind: scores by task, on one grid of environment steps."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import algorithms, group, runs
from ..types import ShoalError
from . import plan as planning
from .plan import Plan
from .statistics import Strata

DEEP = 3  # folders below the one given, in which run folders are looked for


@dataclass(frozen=True)
class Run:
    """One run; `failure` says in words why it does not count, and is empty if it does."""

    path: Path
    algorithm: str  # labels
    env: str
    seed: int
    config: dict[str, Any]  # as `plan.plain` has it
    failure: str = ""
    protocol: dict[str, Any] | None = None
    scores: dict[str, np.ndarray] | None = None  # team -> [grid], mean returns of one agent
    late: int = 0  # steps by which an evaluation came after its place on the grid, at most
    random: dict[str, float] | None = None  # what random play earns, by team
    steps: int = 0
    seconds: float = 0.0  # of training alone

    @property
    def grid(self) -> np.ndarray:
        """The environment steps at which it was to be evaluated."""
        s = self.config["settings"]
        return np.linspace(0, s["steps"], s["evaluations"] + 2)

    @property
    def learners(self) -> tuple[str, ...]:
        """The teams that learn."""
        fixed = [kind.name for kind in algorithms.FIXED]
        return tuple(team for team, one in self.config["teams"].items() if one["algorithm"] not in fixed)


class Task(NamedTuple):
    """What a score is a score of: a team of an environment."""

    env: str
    team: str
    several: bool  # whether the environment has more teams

    @property
    def label(self) -> str:
        return f"{self.env}, {self.team}" if self.several else self.env


@dataclass(frozen=True)
class Study:
    """All runs, and what is asked of them."""

    runs: list[Run]
    scales: dict[str, list[float]]  # that the user has given

    @cached_property
    def algorithms(self) -> list[str]:
        return list(dict.fromkeys(run.algorithm for run in self.runs))

    @cached_property
    def tasks(self) -> list[Task]:
        """Every team of every environment that somebody has played."""
        teams = {run.env: list(run.config["teams"]) for run in self.runs}
        return [Task(env, team, len(sides) > 1) for env, sides in teams.items() for team in sides]

    def of(self, task: Task, algorithm: str, failed: bool = False) -> list[Run]:
        """The runs of an algorithm on a task that have scores, or those that failed."""
        mine = [run for run in self.runs if (run.env, run.algorithm) == (task.env, algorithm)]
        return [run for run in mine if bool(run.failure) == failed]

    def scores(self, task: Task, algorithm: str) -> np.ndarray:
        """`[seeds,grid]` mean returns of one agent."""
        return np.array([run.scores[task.team] for run in self.of(task, algorithm) if run.scores])

    def random(self, task: Task) -> float:
        """What random play earns, over the evaluation games of all runs."""
        levels = [run.random[task.team] for run in self.runs if run.env == task.env and run.random]
        return float(np.mean(levels)) if levels else float("nan")

    def scale(self, task: Task) -> tuple[float, float]:
        """Which scores are 0 and 1: as given, or random play and the best score that any run had at any evaluation."""
        given = self.scales.get(f"{task.env} {task.team}", self.scales.get(task.env))
        if given:
            return given[0], given[1]
        seen = [run.scores[task.team].max() for run in self.runs if run.env == task.env and run.scores]
        return self.random(task), float(max(seen, default=float("nan")))

    @cached_property
    def comparable(self) -> list[Task]:
        """Tasks that enter aggregates: only this team learns, every algorithm has a run, the scale has a length.

        A score against a side that learns as well says as much of that side.
        """
        return [task for task in self.tasks if not self.why_not(task)]

    def why_not(self, task: Task) -> str:
        """Why a task does not enter aggregates."""
        teams = {team for run in self.runs if run.env == task.env for team in run.learners}
        if teams != {task.team}:
            many = "other teams learn too, and a score says as much of them"
            return many if task.team in teams else "this team does not learn"
        missing = [name for name in self.algorithms if not self.of(task, name)]
        if missing:
            return f"{', '.join(missing)} {'have' if len(missing) > 1 else 'has'} no finished run"
        low, high = self.scale(task)
        return "" if high > low else "no run did better than random play"

    def normalised(self, algorithm: str) -> Strata:
        """The final scores of every comparable task, `[seeds]` each, 0 … 1 on its scale."""
        strata = []
        for task in self.comparable:
            low, high = self.scale(task)
            strata.append((self.scores(task, algorithm)[:, -1] - low) / (high - low))
        return strata

    @property
    def failures(self) -> list[Run]:
        return [run for run in self.runs if run.failure]


def of_campaign(folder: Path, plan: Plan) -> Study:
    """The runs that are planned, finished or not."""
    found = []
    for pair in plan.pairs:
        for seed in pair.seeds:
            found.append(read(Run(pair.path(folder, seed), pair.algorithm, pair.env, seed, pair.config)))
    return Study(found, plan.scales)


def of_folder(folder: Path) -> Study:
    """Every run folder in a folder, labelled by what tells them apart."""
    if (folder / planning.FILE).exists():
        return of_campaign(folder, planning.read(folder))
    if (folder / runs.CONFIG).exists():
        raise ShoalError(f"{folder} is one run: say the folder that its runs are in")
    paths = list(_run_folders(folder, DEEP))
    if not paths:
        raise ShoalError(f"{folder} has no run folders: say a folder that runs are in")
    saved = [runs.read_json(path / runs.CONFIG, "a run folder") for path in paths]
    configs = [planning.plain(config) for config in saved]
    whose = labels([(_players(config), config["teams"] | _settings(config, False)) for config in configs])
    where = labels([(config["env"], config["options"] | _settings(config, True)) for config in configs])
    seeds = [config["settings"]["seed"] for config in saved]
    bare = [Run(*each) for each in zip(paths, whose, where, seeds, configs, strict=True)]
    bare.sort(key=lambda run: (run.env, run.algorithm, run.seed))
    _check(bare)
    return Study([read(run) for run in bare], {})


def _settings(config: dict[str, Any], grid: bool) -> dict[str, Any]:
    """Those that say when and how a run is evaluated, which make another task of an environment, or all others."""
    return {name: value for name, value in config["settings"].items() if (name in planning.GRID) == grid}


def _check(found: list[Run]) -> None:
    """Nobody counts twice."""
    places: dict[tuple, Run] = {}
    for run in found:
        twin = places.setdefault((run.algorithm, run.env, run.seed), run)
        if twin is not run:
            raise ShoalError(f"{twin.path} and {run.path} are the same run with the same seed: move one elsewhere")


def _run_folders(folder: Path, depth: int) -> Iterator[Path]:
    for path in sorted(entry for entry in folder.glob("*") if entry.is_dir()):
        if (path / runs.CONFIG).exists():
            yield path
        elif depth > 1:
            yield from _run_folders(path, depth - 1)


def _players(config: dict[str, Any]) -> str:
    names = [one["algorithm"] for one in config["teams"].values()]
    return "+".join(names if len(set(names)) > 1 else names[:1])


def labels(named: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """Each name, and behind it the options in which it differs from others of that name."""
    told = []
    for name, options in named:
        alike = [dict(_flat(other)) for other_name, other in named if other_name == name]
        mine = dict(_flat(options))
        differ = [key for key, value in mine.items() if any(other.get(key) != value for other in alike)]
        told.append(" ".join([name, *(f"{key}={mine[key]}" for key in differ)]))
    return told


def _flat(options: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in options.items():
        if isinstance(value, dict):
            yield from _flat(value, prefix if name == "options" else f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def read(run: Run) -> Run:
    """The same run with what its folder tells."""
    if not (run.path / runs.CONFIG).exists():
        return replace(run, failure=_last("it never began", run.path))
    try:
        if not (run.path / runs.SUMMARY).exists():
            return replace(run, failure=_last("it is not finished", run.path))
        summary = runs.read_json(run.path / runs.SUMMARY, "a finished run")
        if summary["stopped"]:
            return replace(run, failure="it was stopped early")
        saved = runs.read_json(run.path / runs.CONFIG, "a run folder")
        steps, scores = _scores(run.path)
    except (ShoalError, OSError, ValueError, KeyError) as error:
        return replace(run, failure=f"its folder cannot be read ({error})")
    # As the trainer has it: an evaluation takes place as soon as its step is passed.
    at = np.searchsorted(steps, np.minimum(run.grid, steps[-1]))
    at[-1] = len(steps) - 1
    on_grid = {team: rows[at] for team, rows in scores.items()}
    if not all(np.isfinite(rows).all() for rows in on_grid.values()):
        return replace(run, failure="its scores are no numbers")
    return replace(
        run,
        protocol=saved["protocol"],
        scores=on_grid,
        late=int(max(steps[at[1:-1]] - run.grid[1:-1], default=0)),
        random=summary["random"],
        steps=summary["steps"],
        seconds=summary["seconds"],
    )


def _last(what: str, path: Path) -> str:
    said = group.last_words(path)
    return f"{what}; the last it said was: {said}" if said else what


def episodes(run: Run) -> Iterator[dict[str, str]]:
    """The rows of a run's evaluations, one per evaluation, episode, team and agent."""
    with (run.path / runs.EPISODES).open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def _scores(path: Path) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Steps `[E]` of all evaluations, and by team the means `[E]` of their returns."""
    lines = [json.loads(line) for line in (path / runs.METRICS).read_text().splitlines()]
    lines = [line for line in lines if "evaluation/length" in line]
    names = [name.split("/") for name in lines[0]]
    teams = [parts[1] for parts in names if len(parts) == 3 and (parts[0], parts[2]) == ("evaluation", "return")]
    scores = {team: [_number(line[f"evaluation/{team}/return"]) for line in lines] for team in teams}
    return np.array([line["env_step"] for line in lines]), {team: np.array(rows) for team, rows in scores.items()}


def _number(value: float | None) -> float:
    """The log writes what is no number as null."""
    return float("nan") if value is None else value

"""Read the runs of a campaign, or of any folders, into a study."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from .. import algorithms, files
from ..config import campaign as planning
from ..config.campaign import Plan
from ..config.settings import Settings
from ..errors import ShoalError
from ..options import fill
from ..store import folder as runs
from ..store.metrics_file import STEP, metrics_in, read_lines, returns_in
from ..store.records import Failure, Summary
from .study import Left, RunScores, Study, by_metric

DEEP = 3  # levels of subfolders in which run folders are searched
FEW = 3  # options that a label may name even if fewer would tell runs apart
PLAYED = ("games", "window")  # settings of a run that change how its algorithm learns


def of_campaign(folder: Path, plan: Plan, metric: str = "") -> Study:
    """Read all planned runs of a campaign, finished or not. `metric` as in `by_metric`."""
    found = []
    for pair in plan.pairs:
        for seed in pair.seeds:
            found.append(
                read(
                    RunScores(pair.path(folder, seed), pair.algorithm, pair.env, seed, pair.config)
                )
            )
    return by_metric(Study(found, plan.scales), metric)


def of_folders(
    folders: Sequence[Path],
    wanted: Callable[[RunScores], bool] = lambda run: True,
    metric: str = "",
) -> Study:
    """Read all wanted runs in some folders, labelled by what tells them apart.

    A single campaign is read as such. `metric` as in `by_metric`."""
    first = folders[0]
    if len(folders) == 1 and (first / planning.FILE).exists():
        study = of_campaign(first, planning.read(first))
        return by_metric(replace(study, runs=[run for run in study.runs if wanted(run)]), metric)
    if len(folders) == 1 and (first / runs.CONFIG).exists():
        raise ShoalError(f"{first} is one run: say the folder that its runs are in")
    paths = list(
        dict.fromkeys(path for folder in folders for path in _run_folders(folder, DEEP + 1))
    )
    if not paths:
        raise ShoalError(
            f"{' and '.join(map(str, folders))} has no run folders: say a folder that runs are in"
        )
    left = []
    bare = []
    for path in paths:
        run = _bare(path)
        if isinstance(run, Left):
            left.append(run)
        elif wanted(run):
            bare.append(run)
    found = _labelled(bare)
    found.sort(key=lambda run: (run.env, run.algorithm, run.seed))
    once, twins = _once([read(run) for run in found])
    return by_metric(Study(once, {}, [*left, *twins]), metric)


def _run_folders(folder: Path, depth: int) -> Iterator[Path]:
    if (folder / runs.CONFIG).exists():
        yield folder
    elif depth > 0 and folder.is_dir():
        for path in sorted(folder.iterdir()):
            yield from _run_folders(path, depth - 1)


def _bare(path: Path) -> RunScores | Left:
    """A run from its config alone, labelled by algorithms and environment, or why it is not one."""
    try:
        saved = files.read_json(path / runs.CONFIG, "a run folder")
        config = planning.plain(saved)
        seed = fill(Settings, saved["settings"], "a run").seed
        if not config["teams"]:
            raise KeyError("teams")
        names = [one["algorithm"] for one in config["teams"].values()]
        for name in names:
            algorithms.defaults(name)  # it is known, or somebody's own
        run = RunScores(
            path,
            "+".join(names if len(set(names)) > 1 else names[:1]),
            str(config["env"]),
            seed,
            config,
        )
        _task(run).update(_facts(run, False))
        return run if run.grid.size else Left(path, "it has no evaluations")
    except ShoalError as error:
        return Left(path, str(error))
    except (KeyError, TypeError, ValueError, AttributeError):
        return Left(path, f"its {runs.CONFIG} is not as this version of shoal writes it")


def _labelled(bare: list[RunScores]) -> list[RunScores]:
    """Label environments by what makes them different tasks, then the algorithms on each
    likewise."""
    where = labels([(run.env, _task(run)) for run in bare])
    bare = [replace(run, env=env) for run, env in zip(bare, where, strict=True)]
    told = []
    for env in dict.fromkeys(where):
        mine = [run for run in bare if run.env == env]
        for name in dict.fromkeys(run.algorithm for run in mine):
            alike = [run for run in mine if run.algorithm == name]
            one = all(_uniform(run) for run in alike)
            whose = labels([(name, _facts(run, one)) for run in alike])
            told += [replace(run, algorithm=label) for run, label in zip(alike, whose, strict=True)]
    return told


def _task(run: RunScores) -> dict[str, Any]:
    """Values that make runs on one environment different tasks: options of the environment, and
    when and how runs are evaluated."""
    options = {f"env.{name}": value for name, value in run.config["options"].items()}
    sides = {"teams": ",".join(run.config["teams"])}
    return options | sides | {name: run.config["settings"][name] for name in planning.GRID}


def _facts(run: RunScores, uniform: bool) -> dict[str, Any]:
    """Values that make runs different algorithms: options, and how much is played between
    updates."""
    teams = run.config["teams"]
    settings = run.config["settings"]
    facts = {name: settings[name] for name in PLAYED} | {"from": settings.get("from_run", "")}
    for team, one in list(teams.items())[: 1 if uniform else None]:
        facts |= {
            name if uniform else f"{team}.{name}": value for name, value in one["options"].items()
        }
    return facts


def _uniform(run: RunScores) -> bool:
    """Whether all teams have the same options."""
    options = [one["options"] for one in run.config["teams"].values()]
    return all(other == options[0] for other in options)


def _once(found: list[RunScores]) -> tuple[list[RunScores], list[Left]]:
    """Drop duplicates: of equal runs, keep the first that is finished."""
    places: dict[tuple, RunScores] = {}
    for run in sorted(found, key=lambda run: bool(run.failure)):
        places.setdefault((run.algorithm, run.env, run.seed), run)
    kept = list(places.values())
    twins = [
        (run, places[run.algorithm, run.env, run.seed])
        for run in found
        if all(run is not one for one in kept)
    ]
    left = [
        Left(run.path, f"it is the same run with the same seed as {twin.path}")
        for run, twin in twins
    ]
    return [run for run in found if any(run is one for one in kept)], left


def labels(names: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """Each name, followed by the options in which it differs from equal names."""
    told = {}
    for name in dict.fromkeys(name for name, _ in names):
        told[name] = _telling([options for other, options in names if other == name])
    return [
        " ".join(
            [
                name,
                *(
                    f"{key}={planning.formatted(options[key])}"
                    for key in told[name]
                    if key in options
                ),
            ]
        )
        for name, options in names
    ]


def _telling(alike: list[dict[str, Any]]) -> list[str]:
    """Options that tell all of these apart: all that differ if few do, else as few as suffice."""
    rows = [{key: repr(value) for key, value in options.items()} for options in alike]
    keys = dict.fromkeys(key for row in rows for key in row)
    differ = [key for key in keys if len({row.get(key) for row in rows}) > 1]
    if len(differ) <= FEW:
        return differ
    chosen: list[str] = []
    while _kinds(rows, chosen) < _kinds(rows, differ):
        left = [key for key in differ if key not in chosen]
        chosen.append(max(left, key=lambda key: _kinds(rows, [*chosen, key])))
    return chosen


def _kinds(rows: list[dict[str, str]], keys: list[str]) -> int:
    """Number of different rows, by these keys."""
    return len({tuple(row.get(key) for key in keys) for row in rows})


def read(run: RunScores) -> RunScores:
    """Add the scores in a run's folder, or why it has none."""
    if not (run.path / runs.CONFIG).exists():
        return replace(run, failure=_last("it never began", run.path))
    try:
        if not (run.path / runs.SUMMARY).exists():
            return replace(run, failure=_last("it is not finished", run.path))
        ended: Summary | Failure = files.read_json(run.path / runs.SUMMARY, "a finished run")
        if ended["stopped"]:
            return replace(run, failure="it was stopped early")
        if not runs.finished(run.path):
            failed = cast(Failure, ended)
            return replace(run, failure=f"{failed['reason']}: {failed['message']}")
        _check_episodes(run)
        return _scored(run, cast(Summary, ended))
    except (ShoalError, OSError) as error:
        return replace(run, failure=f"its folder cannot be read ({error})")
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        return replace(run, failure=f"its files are not as shoal writes them ({error!r:.200})")


def _scored(run: RunScores, summary: Summary) -> RunScores:
    """Add the scores of a finished run, on its config's grid of steps."""
    saved = files.read_json(run.path / runs.CONFIG, "a run folder")
    steps, scores, metrics = _scores(run)
    # As in the trainer, an evaluation takes place as soon as its step is passed.
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
        random={team: float(summary["random"][team]) for team in on_grid},
        steps=int(summary["steps"]),
        seconds=float(summary["seconds"]),
        metrics={name: rows[at] for name, rows in metrics.items()},
        random_metrics=summary.get("random_metrics", {}),
    )


def _last(what: str, path: Path) -> str:
    said = runs.last_words(path)
    return f"{what}; the last it said was: {said}" if said else what


def _check_episodes(run: RunScores) -> None:
    """Refuse a table of episodes that cannot be read."""
    text = files.read_bytes(run.path / runs.EPISODES).decode("utf-8")
    if len(max(text.splitlines(), key=len, default="")) > csv.field_size_limit():
        raise ValueError("a line of episodes.csv has no end")


def episodes(run: RunScores) -> Iterator[dict[str, str]]:
    """Rows of a run's evaluations: one per evaluation, episode, team and agent."""
    with (run.path / runs.EPISODES).open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def columns(run: RunScores) -> list[str]:
    """Column names of the rows of `episodes`."""
    with (run.path / runs.EPISODES).open(newline="", encoding="utf-8") as file:
        return next(csv.reader(file), [])


def _scores(run: RunScores) -> tuple[np.ndarray, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Steps `[E]` of all evaluations, mean returns `[E]` by team, and the environment's own
    metrics."""
    teams = run.config["teams"]
    lines = read_lines(run.path).evaluations
    returns = [returns_in(line, teams, evaluation=True) for line in lines]
    scores = {team: [_number(one[team]) for one in returns] for team in teams}
    said = [metrics_in(line, teams, evaluation=True) for line in lines]
    names = [name for name in said[-1] if all(name in one for one in said)] if said else []
    metrics = {name: [_number(one[name]) for one in said] for name in names}
    return (
        np.array([line[STEP] for line in lines]),
        {team: np.array(rows) for team, rows in scores.items()},
        {name: np.array(rows) for name, rows in metrics.items()},
    )


def _number(value: float | None) -> float:
    """A number in the log, where NaN is written as null."""
    return float("nan") if value is None else value

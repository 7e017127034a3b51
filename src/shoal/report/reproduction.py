"""Our numbers beside a published table's: every run's scores as JSON, then rows, CSV and Markdown.

The JSON file is all that a report is made of, so run folders may be thrown away. Scores in it are
Shoal's own; rows are on the scale of the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import files
from ..config.campaign import Pair, Plan
from ..config.published import Table, Task
from ..errors import ShoalError
from ..store import folder as runs
from . import tables
from .results import read
from .statistics import FEW, LEVEL, Estimate, estimate, mean
from .study import RunScores

RECORDS = "reproduction.json"
TABLE = "reproduction.csv"
TEXT = "reproduction.md"
AHEAD = "ahead"
LEVEL_WITH = "level"
BEHIND = "behind"
MARKS = (AHEAD, LEVEL_WITH, BEHIND)


class Record(NamedTuple):
    """A finished run. Scores are Shoal's: one agent's mean return, or a metric."""

    task: str
    algorithm: str
    seed: int
    steps: int  # that were asked for
    curve: list[float]  # of all evaluations, by the table's protocol
    final: float  # of the greedy episodes after training
    seconds: float  # of training

    @property
    def key(self) -> tuple[str, str, int, int]:
        return self.task, self.algorithm, self.seed, self.steps


class Failed(NamedTuple):
    """A planned run without scores."""

    name: str
    why: str


# -- records ---------------------------------------------------------------------------------------


def load(folder: Path, table: Table) -> list[Record]:
    """The records in a folder; none in a new one."""
    path = folder / RECORDS
    if not path.exists():
        return []
    content = files.read_json(path, "a reproduction's folder")
    try:
        if content["table"] != table.name:
            raise ShoalError(
                f"{folder} has runs of {content['table']!r}, not of {table.name!r}: choose another"
                f" --out"
            )
        records = [Record(**one) for one in content["runs"]]
        for record in records:
            if not np.isfinite([*record.curve, record.final, record.seconds]).all():
                raise ValueError
        return records
    except (TypeError, KeyError, ValueError):
        raise ShoalError(
            f"{path} was not written by this version of shoal: choose another --out"
        ) from None


def save(records: list[Record], table: Table, folder: Path) -> None:
    content = {"table": table.name, "runs": [record._asdict() for record in records]}
    files.write_json(folder / RECORDS, content)


def without(records: list[Record], table: Table, plan: Plan) -> list[Record]:
    """The records that are not of a plan."""
    keys = {_key(table, pair, seed) for pair in plan.pairs for seed in pair.seeds}
    return [record for record in records if record.key not in keys]


def missing(records: list[Record], table: Table, plan: Plan) -> Plan:
    """The part of a plan that is not recorded."""
    known = {record.key for record in records}
    pairs = []
    for pair in plan.pairs:
        seeds = [seed for seed in pair.seeds if _key(table, pair, seed) not in known]
        if seeds:
            pairs.append(replace(pair, seeds=seeds))
    return Plan(pairs)


def collect(folder: Path, table: Table, plan: Plan) -> tuple[list[Record], list[Failed]]:
    """Records of the finished runs of a plan, and the runs that have no scores."""
    found = []
    failed = []
    for pair in plan.pairs:
        for seed in pair.seeds:
            run = read(
                RunScores(pair.path(folder, seed), pair.algorithm, pair.env, seed, pair.config)
            )
            if run.failure:
                failed.append(Failed(f"{pair.algorithm} on {pair.env}, seed {seed}", run.failure))
            else:
                found.append(_record(table, pair, run))
    return found, failed


def _key(table: Table, pair: Pair, seed: int) -> tuple[str, str, int, int]:
    return task_of(table, pair).name, pair.algorithm, seed, pair.config["settings"]["steps"]


def task_of(table: Table, pair: Pair) -> Task:
    """The task that a pair of the campaign is of."""
    steps = pair.config["settings"]["steps"]
    for task in table.tasks:
        if pair.algorithm in task.published and pair.env == table.label(
            task, pair.algorithm, steps
        ):
            return task
    raise ShoalError(f"{table.name} has no task {pair.env!r} any more: choose another --out")


def _record(table: Table, pair: Pair, run: RunScores) -> Record:
    task = task_of(table, pair)
    summary = files.read_json(run.path / runs.SUMMARY, "a finished run")
    team = task.team or next(iter(pair.config["teams"]))
    if task.metric:
        curve = _metric(run.metrics, team, task.metric)
        final = _metric(summary["final_metrics"], team, task.metric)
    else:
        curve = (run.scores or {})[team]
        final = summary["final"][team]
    scores = [float(score) for score in curve]
    return Record(*_key(table, pair, run.seed), scores, float(final), run.seconds)


def _metric(values: dict[str, Any], team: str, metric: str) -> Any:
    """The team's metric of that name, else the whole game's."""
    own = f"{team}/{metric}"
    return values[own] if own in values else values[metric]


# -- rows ------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """An algorithm on a task with one budget, on the table's scale."""

    task: Task
    algorithm: str
    published: float
    seeds: int
    steps: int
    share: float  # of the published budget
    theirs: Estimate  # by the table's protocol: mean over seeds
    ours: Estimate  # of the greedy episodes after training: IQM over seeds
    final_mean: float
    seconds: float  # mean over seeds
    incomparable: str  # why it is not marked; empty where it is

    @property
    def marks(self) -> tuple[str, str]:
        """By their protocol and by ours."""
        return mark(self.theirs, self), mark(self.ours, self)


def mark(ours: Estimate, row: Row) -> str:
    """Whether the interval lies above, around or below the published number, as it was rounded.

    Empty with one seed, which has no interval, and where the numbers cannot be compared."""
    if ours.low is None or ours.high is None or row.incomparable:
        return ""
    rounding = 0.5 * 10.0**-row.task.digits
    if ours.low > row.published + rounding:
        return AHEAD
    if ours.high < row.published - rounding:
        return BEHIND
    return LEVEL_WITH


def rows(table: Table, records: list[Record]) -> list[Row]:
    """All rows that have runs, in the table's order, smaller budgets first."""
    found = []
    for task in table.tasks:
        for algorithm in table.algorithms:
            mine = [one for one in records if (one.task, one.algorithm) == (task.name, algorithm)]
            for steps in sorted({one.steps for one in mine}):
                alike = [one for one in mine if one.steps == steps]
                found.append(_row(table, task, algorithm, alike))
    return found


def _row(table: Table, task: Task, algorithm: str, mine: list[Record]) -> Row:
    curves = task.scaled(np.array([one.curve for one in mine]))  # [seeds,evaluations]
    final = task.scaled(np.array([one.final for one in mine]))
    at = int(curves.mean(0).argmax()) if table.about.score == "best" else -1
    steps = mine[0].steps
    return Row(
        task,
        algorithm,
        task.published[algorithm],
        len(mine),
        steps,
        steps / table.steps(task, algorithm),
        estimate([curves[:, at]], mean),
        estimate([final]),
        float(final.mean()),
        float(np.mean([one.seconds for one in mine])),
        task.incomparable or table.algorithms[algorithm].incomparable,
    )


# -- in words --------------------------------------------------------------------------------------


def score_words(table: Table) -> str:
    """The published score, in a few words."""
    return f"best of {table.about.evaluations}" if table.about.score == "best" else "at the end"


def head(table: Table) -> list[str]:
    return [
        *("task", "algorithm", "published"),
        *(f"{score_words(table)}, mean", "95 % CI", "we are"),
        *("greedy IQM", "95 % CI", "we are"),
        *("seeds", "steps", "seconds"),
    ]


def cells(row: Row) -> list[str]:
    """A row as text."""
    places = row.task.digits
    told = [row.task.name, row.algorithm, tables.number(row.published, places)]
    for guess, word in zip((row.theirs, row.ours), row.marks, strict=True):
        told += [
            tables.number(float(guess.value), max(places, 1)),
            tables.interval(guess, max(places, 1)),
            word or tables.NOTHING,
        ]
    share = "" if row.share == 1 else f" ({row.share:.3g}×)"
    return [*told, str(row.seeds), f"{row.steps:,}{share}", f"{row.seconds:,.0f}"]


def tallies(found: list[Row]) -> list[str]:
    """How many rows are ahead, level and behind, by either protocol."""
    told = []
    for place, how in enumerate(("By their protocol", "By our protocol")):
        marks = [row.marks[place] for row in found]
        parts = [f"{marks.count(word)} {word}" for word in MARKS]
        none = f", {marks.count('')} not marked" if "" in marks else ""
        told.append(f"{how}: {', '.join(parts)}{none}.")
    return told


def remarks(table: Table, found: list[Row], failed: list[Failed]) -> list[str]:
    """What a reader of the numbers must know."""
    told = []
    total = sum(len(task.published) for task in table.tasks)
    done = len({(row.task.name, row.algorithm) for row in found})
    told.append(f"{done} of {total} published numbers have runs of ours.")
    least = min((row.seeds for row in found), default=FEW)
    if least < FEW:
        one = "; one seed has none, and no mark" if least == 1 else ""
        told.append(f"Intervals of fewer than {FEW} seeds are too narrow{one}.")
    if any(row.share < 1 for row in found):
        told.append("Rows with a share below 1× had less training than the published ones.")
    if found:
        hours = sum(row.seeds * row.seconds for row in found) / 3600
        told.append(
            f"Seconds are of one run's training, by the clock; of all runs {hours:.1f} hours."
        )
    for name, entry in table.algorithms.items():
        if entry.incomparable and any(row.algorithm == name for row in found):
            told.append(f"{name} is not marked: {entry.incomparable}.")
    there = {row.task.name for row in found}
    for task in table.tasks:
        if task.name in there and task.incomparable:
            told.append(f"{task.name} is not marked: {task.incomparable}.")
        if task.name in there and task.note:
            told.append(f"{task.name}: {task.note}.")
        if task.missing:
            told.append(f"{task.name} is not reproduced: {task.missing}.")
    return [*told, *(f"Not counted: {name}: {why}." for name, why in failed)]


def markdown(table: Table, found: list[Row], failed: list[Failed]) -> str:
    """The table and its remarks."""
    blank = [tables.NOTHING] * (len(head(table)) - 2)
    body = [cells(row) for row in found]
    body += [[task.name, "not reproduced", *blank] for task in table.tasks if task.missing]
    parts = [
        f"# {table.about.title}",
        table.about.source,
        tables.aligned(head(table), body, 2),
        *tallies(found),
        f"Their protocol: {table.about.protocol}",
        f"Our protocol: {ours_in_words(table)}",
        *remarks(table, found, failed),
    ]
    return "\n\n".join(parts) + "\n"


def ours_in_words(table: Table) -> str:
    """Our protocol and the meaning of the marks."""
    return (
        f"{table.about.final_episodes:,} greedy episodes of the policy that training"
        f" ended with. A row is ahead, level or behind if the {LEVEL:.0%} bootstrap interval over"
        f" seeds lies above, around or below the published number."
    )


def write(table: Table, found: list[Row], failed: list[Failed], folder: Path) -> None:
    """Write the CSV file and the Markdown."""
    tables.write_csv(folder / TABLE, _plain(found))
    files.write_text(folder / TEXT, markdown(table, found, failed))


def _plain(found: list[Row]) -> Iterator[list]:
    yield [
        *("task", "algorithm", "published", "seeds", "steps", "budget"),
        *("protocol_mean", "protocol_low", "protocol_high", "protocol_is"),
        *("final_iqm", "final_low", "final_high", "final_is", "final_mean", "seconds"),
    ]
    for row in found:
        known = [row.published, row.seeds, row.steps, row.share]
        told = [
            *known,
            *_bounds(row.theirs),
            row.marks[0],
            *_bounds(row.ours),
            row.marks[1],
            row.final_mean,
            row.seconds,
        ]
        yield [row.task.name, row.algorithm, *map(_short, told)]


def _bounds(guess: Estimate) -> list[Any]:
    return [None if bound is None else float(bound) for bound in guess]


def _short(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.7g}" if isinstance(value, float) else str(value)

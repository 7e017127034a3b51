"""Tables of a study: one row per run, per task and algorithm, and per algorithm over all tasks; as
CSV and Markdown."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ..files import atomic, write_text
from ..store.metrics_file import episode_name
from .results import columns, episodes
from .statistics import FEW, Estimate, estimate, improvement
from .study import RunScores, Study, Task

EPISODES = "episodes.csv"
TABLE = "table.csv"
TEXT = "table.md"
NOTHING = "–"
SHOWN = 12  # most runs named in a remark


class Row(NamedTuple):
    """An algorithm on a task. Scores are as the study defines them; deviations are between
    seeds."""

    task: Task
    algorithm: str
    seeds: int  # finished seeds
    failed: int
    final: np.ndarray  # [seeds] last evaluation
    best: np.ndarray  # [seeds] best evaluation
    iqm: Estimate | None  # of `final`
    steps: float
    seconds: float
    speed: float  # steps/s
    metrics: list[np.ndarray]  # [seeds] or [0], for each of the study's words


class Total(NamedTuple):
    """An algorithm over all comparable tasks, by normalised final scores."""

    algorithm: str
    runs: int
    mean: float
    iqm: Estimate


class Comparison(NamedTuple):
    """Two algorithms, and the probability that a run of the first beats a run of the second."""

    one: str
    other: str
    probability: Estimate


def rows(study: Study) -> list[Row]:
    """All rows, by task, then by algorithm."""
    return [
        _row(study, task, algorithm)
        for task in study.tasks
        for algorithm in study.algorithms
        if _ran(study, task, algorithm)
    ]


def _ran(study: Study, task: Task, algorithm: str) -> bool:
    return bool(study.of(task, algorithm) or study.of(task, algorithm, failed=True))


def _row(study: Study, task: Task, algorithm: str) -> Row:
    mine = study.of(task, algorithm)
    failed = len(study.of(task, algorithm, failed=True))
    if not mine:
        nothing = np.zeros(0)
        costs = (math.nan, math.nan, math.nan)
        said = [nothing for _ in study.words]
        return Row(task, algorithm, 0, failed, nothing, nothing, None, *costs, said)
    scores = study.scores(task, algorithm)
    final = scores[:, -1]
    best = scores.max(1)
    steps, seconds = (
        float(np.mean([getattr(run, name) for run in mine])) for name in ("steps", "seconds")
    )
    speed = float(np.mean([run.steps / max(run.seconds, 1e-9) for run in mine]))
    said = [[run.final(task.team, word) for run in mine] for word in study.words]
    metrics = [np.array([value for value in values if value is not None]) for values in said]
    middle = estimate([final])
    return Row(
        task, algorithm, len(mine), failed, final, best, middle, steps, seconds, speed, metrics
    )


def totals(study: Study) -> list[Total]:
    """Algorithms over all comparable tasks, best first; empty without such a task."""
    if not study.comparable:
        return []
    found = []
    for algorithm in study.algorithms:
        strata = study.normalised(algorithm)
        everything = np.concatenate(strata)
        found.append(Total(algorithm, len(everything), float(everything.mean()), estimate(strata)))
    return sorted(found, key=lambda total: -float(total.iqm.value))


def comparisons(study: Study) -> list[Comparison]:
    """Every pair of algorithms, the probable winner first."""
    order = [total.algorithm for total in totals(study)]
    found = []
    for i, one in enumerate(order):
        for other in order[i + 1 :]:
            probability = improvement(*(study.normalised(name) for name in (one, other)))
            if probability.value < 0.5:
                one_ = other
                other_ = one
                probability = improvement(*(study.normalised(name) for name in (other, one)))
            else:
                one_ = one
                other_ = other
            found.append(Comparison(one_, other_, probability))
    return found


# -- in words --------------------------------------------------------------------------------------

HEAD = (
    "task",
    "algorithm",
    "seeds",
    "final IQM",
    "95 % CI",
    "final mean ± std",
    "best mean ± std",
    "steps",
    "seconds",
    "steps/s",
)
COSTS = 3  # columns at the end; metrics of environments come before them
TOTAL_HEAD = ("algorithm", "runs", "normalised IQM", "95 % CI", "normalised mean")


def head(study: Study) -> list[str]:
    """Column names of the table."""
    return [*HEAD[:-COSTS], *study.words, *HEAD[-COSTS:]]


def cells(study: Study, row: Row) -> list[str]:
    """A row as text."""
    places = digits(study, row.task)
    seeds = f"{row.seeds} of {row.seeds + row.failed}" if row.failed else str(row.seeds)
    if row.iqm is None:
        return [row.task.label, row.algorithm, seeds, *[NOTHING] * (len(head(study)) - 3)]
    return [
        row.task.label,
        row.algorithm,
        seeds,
        number(float(row.iqm.value), places),
        interval(row.iqm, places),
        spread(row.final, places),
        spread(row.best, places),
        *(spread(values, 2) if len(values) else NOTHING for values in row.metrics),
        f"{row.steps:,.0f}",
        f"{row.seconds:,.1f}",
        f"{row.speed:,.0f}",
    ]


def total_cells(total: Total) -> list[str]:
    return [
        total.algorithm,
        str(total.runs),
        number(float(total.iqm.value), 2),
        interval(total.iqm, 2),
        number(total.mean, 2),
    ]


def digits(study: Study, task: Task) -> int:
    """Decimals that tell scores of a task apart: a thousandth of its scale."""
    low, high = study.scale(task)
    span = abs(high - low)
    return min(max(round(3 - math.log10(span)), 0), 5) if math.isfinite(span) and span > 0 else 2


def number(value: float, places: int) -> str:
    """A number with separators and a true minus sign."""
    return f"{value:,.{places}f}".replace("-", "−")


def interval(estimate: Estimate, places: int) -> str:
    if estimate.low is None or estimate.high is None:
        return NOTHING
    return f"[{number(float(estimate.low), places)}, {number(float(estimate.high), places)}]"


def spread(values: np.ndarray, places: int) -> str:
    """`mean ± deviation`; one seed has no deviation."""
    mean = number(float(values.mean()), places)
    return f"{mean} ± {number(float(values.std(ddof=1)), places)}" if len(values) > 1 else mean


def aligned(head: Iterable[str], lines: list[list[str]], text: int) -> str:
    """A Markdown table with aligned columns; the first `text` columns are words, the others
    numbers."""
    table = [list(head), *lines]
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    rule = ["-" * width if i < text else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    padded = [
        [
            _pad(cell, width, i < text)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        for line in table
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in [padded[0], rule, *padded[1:]])


def _pad(cell: str, width: int, left: bool) -> str:
    return cell.ljust(width) if left else cell.rjust(width)


def markdown(study: Study) -> str:
    """Both tables with their remarks, as Markdown."""
    parts = [aligned(head(study), [cells(study, row) for row in rows(study)], 2)]
    if study.comparable and len(study.algorithms) > 1:
        parts.append(aligned(TOTAL_HEAD, [total_cells(total) for total in totals(study)], 1))
    return "\n\n".join([*parts, *remarks(study)]) + "\n"


def remarks(study: Study) -> list[str]:
    """What a reader of the numbers must know."""
    told = []
    seeds = [row.seeds for row in rows(study)]
    if min(seeds) < FEW:
        least = f"{min(seeds)} seed{'s' * (min(seeds) != 1)}"
        more = "One seed has no interval. " if 1 in seeds else ""
        told.append(
            f"Few seeds: some rows have only {least}. {more}Intervals of fewer than {FEW} seeds"
            f" are too narrow."
        )
    told += _reasons("Left out", [(str(path), why) for path, why in study.left])
    told += _reasons(
        "Not counted",
        [(f"{r.algorithm} on {r.env}, seed {r.seed}", r.failure) for r in study.failures],
    )
    if len(study.algorithms) > 1:
        apart = [(task.label, study.why_not(task)) for task in study.tasks]
        told += _reasons(
            "Not in the normalised scores", [(label, why) for label, why in apart if why]
        )
    return told


def _reasons(what: str, cases: list[tuple[str, str]]) -> list[str]:
    """A sentence for every reason, with the cases it applies to."""
    grouped: dict[str, list[str]] = {}
    for case, why in cases:
        grouped.setdefault(why, []).append(case)
    return [f"{what}: {_some(which)}: {why}." for why, which in grouped.items()]


def _some(cases: list[str]) -> str:
    """The first few cases, and how many more there are."""
    more = [f"and {len(cases) - SHOWN} more"] if len(cases) > SHOWN else []
    return "; ".join([*cases[:SHOWN], *more])


# -- files -----------------------------------------------------------------------------------------


def write(study: Study, folder: Path) -> None:
    """Write the CSV files and the Markdown."""
    write_csv(folder / TABLE, _plain(study))
    write_csv(folder / EPISODES, _episodes(study, folder))
    write_text(folder / TEXT, markdown(study))


def _plain(study: Study) -> Iterator[list]:
    yield [
        *(
            "env",
            "team",
            "algorithm",
            "seeds",
            "failed",
            "final_mean",
            "final_std",
            "final_iqm",
            "iqm_low",
            "iqm_high",
        ),
        *(
            "best_mean",
            "best_std",
            "random",
            "scale_0",
            "scale_1",
            "steps",
            "seconds",
            "steps_per_second",
        ),
        *(f"{episode_name(word)}/{kind}" for word in study.words for kind in ("mean", "std")),
    ]
    for row in rows(study):
        who = [row.task.env, row.task.team, row.algorithm, row.seeds, row.failed]
        if row.iqm is None:
            yield [*who, *[""] * (13 + 2 * len(study.words))]
            continue
        deviations = [
            float(each.std(ddof=1)) if row.seeds > 1 else None for each in (row.final, row.best)
        ]
        bounds = [None if bound is None else float(bound) for bound in (row.iqm.low, row.iqm.high)]
        values = [
            float(row.final.mean()),
            deviations[0],
            float(row.iqm.value),
            *bounds,
            float(row.best.mean()),
        ]
        values += [
            deviations[1],
            study.random(row.task),
            *study.scale(row.task),
            row.steps,
            row.seconds,
            row.speed,
            *(value for values in row.metrics for value in _mean_and_deviation(values)),
        ]
        yield [*who, *("" if value is None else f"{value:.7g}" for value in values)]


def _mean_and_deviation(values: np.ndarray) -> tuple[float | None, float | None]:
    """Mean and deviation, each None if there are too few values."""
    mean = float(values.mean()) if len(values) else None
    return mean, float(values.std(ddof=1)) if len(values) > 1 else None


def _episodes(study: Study, folder: Path) -> Iterator[list]:
    done = [run for run in study.runs if not run.failure]
    told = list(dict.fromkeys(name for run in done for name in columns(run)))
    yield ["run", "algorithm", "env", "seed", *told]
    for run in done:
        for row in episodes(run):
            yield [
                _place(run, folder),
                run.algorithm,
                run.env,
                run.seed,
                *(row.get(name, "") for name in told),
            ]


def _place(run: RunScores, folder: Path) -> str:
    return os.path.relpath(run.path, folder)


def write_csv(path: Path, lines: Iterable[list]) -> None:
    with atomic(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(lines)

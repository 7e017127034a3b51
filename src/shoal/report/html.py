"""The report as one HTML page: self-contained, nothing from the network, light or dark."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from typing import Any
from urllib.parse import quote

from .. import algorithms
from ..config.campaign import GRID
from ..config.settings import Settings
from ..files import write_text
from . import figures as plots
from . import tables
from .statistics import LEVEL, RESAMPLES
from .study import RunScores, Study

REPORT = "report.html"
STYLE = """
:root { color-scheme: light dark; --ink: #24292e; --faint: #68727b; --line: #dfe4e8;
  --page: #ffffff; --card: #f6f8f9;
  --link: #1f6f8b; --warn: #fff4dc; --warn-ink: #6b4a00; }
@media (prefers-color-scheme: dark) { :root { --ink: #dde3e8; --faint: #98a3ac; --line: #343c44;
  --page: #14181c;
  --card: #1c2126; --link: #6cc3df; --warn: #3a2f16; --warn-ink: #f0d9a4; } }
body { margin: 0 auto; max-width: 70rem; padding: 2.5rem 1.5rem 4rem; background: var(--page);
  color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .3rem; }
h2 { font-size: 1.15rem; margin: 2.6rem 0 .5rem; padding-top: .9rem;
  border-top: 1px solid var(--line); }
p { margin: .4rem 0; max-width: 46rem; }
.faint { color: var(--faint); }
a { color: var(--link); }
.warn { background: var(--warn); color: var(--warn-ink); border-radius: 6px;
  padding: .5rem .9rem; margin: 1rem 0; }
.warn p { max-width: none; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .8rem 0; font-size: .86rem;
  font-variant-numeric: tabular-nums; }
th, td { padding: .26rem .55rem; text-align: left; white-space: nowrap; }
th { color: var(--faint); font-weight: 600; border-bottom: 1px solid var(--faint);
  vertical-align: bottom; }
td { border-bottom: 1px solid var(--line); }
th:first-child, td:first-child { padding-left: 0; }
.n { text-align: right; }
.best { font-weight: 700; }
td.long { white-space: normal; min-width: 18rem; }
tr.next td { padding-top: .8rem; }
svg { display: block; max-width: 100%; height: auto; margin: .6rem 0; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.4rem; margin: .6rem 0; }
dt { color: var(--faint); } dd { margin: 0; }
"""


def write(study: Study, folder: Path) -> None:
    """Write the page, the curves as a picture beside it, and every figure as a file for papers."""
    pictures = figures(study)
    write_text(folder / REPORT, page(study, folder, pictures))
    plots.save(pictures["curves"], folder / plots.CURVES)
    (folder / plots.FIGURES).mkdir(exist_ok=True)
    for name, picture in pictures.items():
        for kind in plots.KINDS:
            plots.save(picture, folder / plots.FIGURES / f"{name}{kind}")


def figures(study: Study) -> dict[str, Any]:
    """The curves, and figures of normalised scores if several algorithms can be compared."""
    drawn = {"curves": plots.curves(study)}
    if len(study.algorithms) > 1 and study.comparable:
        drawn["scores"] = plots.aggregates(study, tables.totals(study))
        drawn["profiles"] = plots.profiles(study)
        drawn["improvement"] = plots.comparisons(study, tables.comparisons(study))
    return drawn


def page(study: Study, folder: Path, pictures: dict[str, Any]) -> str:
    """The whole page as HTML."""
    drawn = {name: plots.inline(picture) for name, picture in pictures.items()}
    title = (
        f"{folder.absolute().name}: {count(len(study.algorithms), 'algorithm')} on"
        f" {count(len(study.tasks), 'task')}"
    )
    several = "profiles" in drawn
    parts = [
        f"<h1>{escape(title)}</h1>",
        f'<p class="faint">{escape(_runs(study))}</p>',
        remarks(study),
        section("Scores", scores(study)),
        *([section("Over all tasks", aggregate(study, drawn["scores"]))] if several else []),
        section("Learning curves", CURVES_TOLD, drawn["curves"]),
        *([section("Performance profiles", PROFILES_TOLD, drawn["profiles"])] if several else []),
        *(
            [section("Probability of improvement", DUELS_TOLD, drawn["improvement"])]
            if several
            else []
        ),
        section("What was run", _protocol(study)),
        section("Every run", _every_run(study, folder)),
        section("Settings", SETTINGS_TOLD, _settings(study)),
    ]
    return document(title, parts)


def document(title: str, parts: Sequence[str], style: str = STYLE) -> str:
    """A page of its own from parts in HTML."""
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escape(title)}</title>"
    )
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><head>{head}<style>{style}</style></head>\n'
        f"<body>\n{body}\n</body></html>\n"
    )


CURVES_TOLD = (
    f"The interquartile mean over seeds at every evaluation; bands are its {LEVEL:.0%}"
    f" bootstrap intervals, where there"
    " is more than one seed. What nets do before the first step may lie below what is shown."
)
PROFILES_TOLD = (
    "For every normalised score τ, the share of all runs that ended above it: higher is better"
    " throughout."
)
DUELS_TOLD = (
    "How probably a run of the first algorithm ends above a run of the second, on average over"
    " tasks. An interval that"
    " holds 0.5 says that the runs do not tell which one is better."
)
SETTINGS_TOLD = (
    "What each algorithm was told that differs from its defaults, by preset or by option."
)


def remarks(study: Study) -> str:
    told = "".join(f"<p>{escape(remark)}</p>" for remark in tables.remarks(study))
    return f'<div class="warn">{told}</div>' if told else ""


def section(title: str, *parts: str) -> str:
    blocks = "\n".join(part if part.startswith("<") else f"<p>{escape(part)}</p>" for part in parts)
    return f"<section><h2>{escape(title)}</h2>\n{blocks}</section>"


def _runs(study: Study) -> str:
    without = f", {len(study.failures)} of them not counted" * bool(study.failures)
    score = (
        f"means of the metric {study.metric} of the environments"
        if study.metric
        else "mean returns of one agent"
    )
    return f"{count(len(study.runs), 'run')}{without}. Scores are {score}."


def scores(study: Study) -> str:
    rows = tables.rows(study)
    best = {
        task: max((row for row in rows if row.task == task), key=_middle) for task in study.tasks
    }
    lines = []
    before = None
    for row in rows:
        cells = tables.cells(study, row)
        marks = ["best" if row is best[row.task] and i in (1, 3) else "" for i in range(len(cells))]
        first = row.task != before
        cells[0] = cells[0] if first else ""
        lines.append(line(cells, 2, marks, "next" if first and before else ""))
        before = row.task
    told = (
        "Final is the last evaluation, best the highest of all evaluations of a run (which"
        " flatters, as it is chosen by"
        " the same episodes). IQM is the interquartile mean over seeds. Seconds are of training"
        " alone; runs that shared"
        " the machine took longer than they would alone."
    )
    return f"{table(tables.head(study), lines, 2)}<p class=faint>{escape(told)}</p>"


def _middle(row: tables.Row) -> float:
    return float("-inf") if row.iqm is None else float(row.iqm.value)


def aggregate(study: Study, picture: str) -> str:
    scales = []
    for task in study.comparable:
        low, high = study.scale(task)
        places = tables.digits(study, task)
        given = (
            "given"
            if task.label in study.scales or task.env in study.scales
            else "random play and best score seen"
        )
        scales.append(
            line([task.label, given, tables.number(low, places), tables.number(high, places)], 2)
        )
    told = (
        "Final scores are put on a scale for each task, on which 0 and 1 are the scores below,"
        " and all runs are taken"
        f" together. Intervals: {LEVEL:.0%}, stratified bootstrap over the seeds of each task,"
        f" {RESAMPLES:,} draws."
    )
    marks = table(("task", "0 and 1 are", "0", "1"), scales, 2)
    return f"<p>{escape(told)}</p>{picture}{marks}"


def _protocol(study: Study) -> str:
    """The protocol: facts of all runs once, then what differs by environment."""
    done = [run for run in study.runs if run.protocol]
    facts: dict[str, str] = {}
    for name in ("versions", "device", "devices", "score"):
        facts[name] = " / ".join(
            dict.fromkeys(_words((run.protocol or {}).get(name)) for run in done)
        )
    facts["score"] = study.metric or facts["score"]
    facts["seeds"] = ", ".join(str(seed) for seed in sorted({run.seed for run in study.runs}))
    late = max((run.late / run.config["settings"]["steps"] for run in done), default=0.0)
    facts["grid"] = (
        "evaluations at equal distances from the first step to the last; a run is evaluated"
        " when the update that passes"
        f" the point is done, here at most {late:.1%} of the run later"
    )
    lines = []
    for env in dict.fromkeys(run.env for run in study.runs):
        s = next(run.config["settings"] for run in study.runs if run.env == env)
        how = "greedy" if s["greedy"] else "sampled"
        lines.append(
            line(
                [env, how, f"{s['steps']:,}", str(s["evaluations"] + 2), str(s["eval_episodes"])], 2
            )
        )
    told = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in facts.items()
    )
    head = ("environment", "actions", "steps", "evaluations", "episodes each")
    return f"<dl>{told}</dl>{table(head, lines, 2)}"


def _every_run(study: Study, folder: Path) -> str:
    lines = []
    for task in study.tasks:
        for run in (run for run in study.runs if run.env == task.env):
            cells = [escape(task.label), escape(run.algorithm), _link(run, folder), str(run.seed)]
            if run.scores is None:
                cells += ["not counted", "", "", ""]
            else:
                row = run.scores[task.team]
                places = tables.digits(study, task)
                cells += [tables.number(float(score), places) for score in (row[-1], row.max())]
                cells += [f"{run.steps:,}", f"{run.seconds:,.1f}"]
            lines.append(line(cells, 3, raw=True))
    head = ("task", "algorithm", "folder", "seed", "final", "best", "steps", "seconds")
    return table(head, lines, 3)


def _link(run: RunScores, folder: Path) -> str:
    place = os.path.relpath(run.path, folder)
    name = escape(place.removeprefix("runs/"))
    return f'<a href="{quote(place)}/">{name}</a>' if run.path.exists() else name


def _settings(study: Study) -> str:
    lines = []
    for env, algorithm in dict.fromkeys((run.env, run.algorithm) for run in study.runs):
        config = next(
            run.config for run in study.runs if (run.env, run.algorithm) == (env, algorithm)
        )
        told = [f"{name} {_words(value)}" for name, value in _unusual(config)]
        lines.append(
            line(
                [escape(env), escape(algorithm), escape(", ".join(told)) or tables.NOTHING],
                3,
                ["", "", "long"],
                raw=True,
            )
        )
    return table(("environment", "algorithm", "set to"), lines, 3)


def _unusual(config: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    usual = dataclasses.asdict(Settings())
    yield from (
        (name, value)
        for name, value in config["settings"].items()
        if name not in GRID and value != usual.get(name)
    )
    same = len({str((one["algorithm"], one["options"])) for one in config["teams"].values()}) == 1
    for team, one in list(config["teams"].items())[: 1 if same else None]:
        defaults = algorithms.defaults(one["algorithm"])
        prefix = "" if same else f"{team}."
        if not same:
            yield f"{team} plays", one["algorithm"]
        yield from (
            (f"{prefix}{name}", value)
            for name, value in one["options"].items()
            if value != defaults.get(name)
        )


def table(head: Sequence[str], lines: list[str], text: int) -> str:
    """An HTML table; the first `text` columns hold words, the others numbers."""
    cells = "".join(
        f"<th{_class('n' if i >= text else '')}>{escape(name)}</th>" for i, name in enumerate(head)
    )
    rows = "".join(lines)
    table = f"<table><thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="wide">{table}</div>'


def line(
    cells: Sequence[str], text: int, marks: Sequence[str] = (), row: str = "", raw: bool = False
) -> str:
    told = []
    for i, cell in enumerate(cells):
        kinds = " ".join(filter(None, ("n" if i >= text else "", marks[i] if marks else "")))
        told.append(f"<td{_class(kinds)}>{cell if raw else escape(cell)}</td>")
    return f"<tr{_class(row)}>{''.join(told)}</tr>"


def _class(names: str) -> str:
    return f' class="{names}"' if names else ""


def _words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {one}" for name, one in value.items())
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:g}" if isinstance(value, float) else str(value)


def count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"

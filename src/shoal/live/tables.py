"""Tables of the page as HTML, readable without JavaScript; everything from files is escaped."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from .. import files
from ..config.trust import Trust, of_files
from ..errors import ShoalError, printable
from ..report import html, results, tables
from .index import Index, Run, flat

PER_PAGE = 200
COLUMNS = 12  # runs whose configs stand side by side
HEATS = 10  # colours of a heat map
LARGEST = 60  # rows of a heat map
RUN_HEAD = (
    "",
    "run",
    "status",
    "algorithm",
    "environment",
    "seed",
    "progress",
    "left",
    "return",
    "steps/s",
    "where",
)


class Query(NamedTuple):
    """What the table of runs shows."""

    words: str = ""
    page: int = 0
    chosen: frozenset[str] = frozenset()


def matching(index: Index, words: str) -> list[Run]:
    """Runs that have every word in their name, algorithm, environment or status."""
    wanted = words.lower().split()
    return [
        run
        for run in index.runs.values()
        if all(
            word in f"{run.id} {run.label} {run.env} {run.status} seed-{run.seed}".lower()
            for word in wanted
        )
    ]


def runs_table(index: Index, query: Query, suffix: str = "", per_page: int = PER_PAGE) -> str:
    """The table of runs, by the folder that they are in, and links to its other pages."""
    found = matching(index, query.words)
    first = query.page * per_page
    shown = found[first : first + per_page]
    lines = []
    for group, members in groupby(shown, key=lambda run: run.group):
        mine = [run for run in found if run.group == group]
        lines.append(_group(group, mine))
        lines += [_row(run, index.names, run.slug in query.chosen, suffix) for run in members]
    if not lines:
        what = "no run matches" if query.words else "no runs here yet: they appear as they begin"
        lines = [f'<tr><td colspan="{len(RUN_HEAD)}" class="empty">{what}</td></tr>']
    head = "".join(f"<th scope=col>{name}</th>" for name in RUN_HEAD)
    head = head.replace(
        "<th scope=col></th>", '<th scope=col><span class="unseen">pick</span></th>'
    )
    return (
        f'<p class="count">{_counted(found)}</p>'
        f'<div class="wide"><table class="runs"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(lines)}</tbody></table></div>{_pages(query, len(found), per_page)}"
    )


def _counted(runs: Sequence[Run]) -> str:
    kinds: dict[str, int] = {}
    for run in runs:
        kinds[run.status] = kinds.get(run.status, 0) + 1
    told = " · ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
    return f"{len(runs):,} {'run' if len(runs) == 1 else 'runs'}{': ' if told else ''}{told}"


def _group(group: str, runs: Sequence[Run]) -> str:
    name = escape(group or "runs")
    done = sum(run.progress for run in runs) / max(len(runs), 1)
    left = max((run.left for run in runs), default=0.0)
    wait = f", {duration(left)} left" if left else ""
    return (
        f'<tr class="group"><td><input type="checkbox" class="all" hidden'
        f' aria-label="pick all runs of {name}"></td>'
        f'<th colspan="{len(RUN_HEAD) - 1}" scope="rowgroup">{name}'
        f' <span class="faint">{_counted(runs)}, {done:.0%} done{wait}</span></th></tr>'
    )


def _row(run: Run, names: dict[str, str], chosen: bool, suffix: str) -> str:
    scores = ", ".join(
        escape(f"{team} {x:.2f}" if len(run.scores) > 1 else f"{x:.2f}")
        for team, x in run.scores.items()
    )
    picked = " checked" if chosen else ""
    name = escape(run.name)
    faults = f' <span class="badge warn">{run.faults} faults</span>' if run.faults else ""
    cells = (
        f'<input type="checkbox" name="run" value="{run.slug}" aria-label="pick {name}"{picked}'
        f' data-kin="{run.kin}" data-kind="{escape(names.get(run.kin, ""))}">',
        f'<a href="run/{run.slug}{suffix}">{name}</a>{faults}',
        pill(run),
        escape(run.label),
        escape(run.env),
        str(run.seed) if run.kin else "",
        bar(run) if run.kin else "",
        duration(run.left) if run.left else "",
        scores.replace("-", "−"),
        f"{run.rate:,.0f}" if run.rate else "",
        f'<span class="faint">{escape(run.where)}</span>',
    )
    return f'<tr data-slug="{run.slug}">{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def pill(run: Run) -> str:
    why = f' title="{escape(run.why)}"' if run.why else ""
    return f'<span class="pill {run.status}"{why}>{run.status}</span>'


def bar(run: Run) -> str:
    return (
        f'<progress max="1" value="{run.progress:.4f}" aria-label="progress"></progress>'
        f' <span class="n">{run.progress:.0%}</span>'
    )


def _pages(query: Query, count: int, per_page: int) -> str:
    total = -(-count // per_page)
    if total < 2:
        return ""
    links = [
        f"<b>{page + 1}</b>"
        if page == query.page
        else f'<button class="page" name="page" value="{page}">{page + 1}</button>'
        for page in range(total)
    ]
    return f'<nav class="pages" aria-label="pages of runs">{" ".join(links)}</nav>'


def duration(seconds: float) -> str:
    """Seconds in the two largest units."""
    parts = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))
    left = round(seconds)
    told = []
    for size, unit in parts:
        if left >= size:
            told.append(f"{left // size} {unit}")
            left %= size
    return " ".join(told[:2]) or "0 s"


def ago(when: float) -> str:
    return f"{duration(max(time.time() - when, 0))} ago" if when else ""


def facts(pairs: Iterable[tuple[str, str]]) -> str:
    """A list of names and values; values are HTML."""
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{value}</dd>" for name, value in pairs if value)
    return f"<dl>{rows}</dl>"


# -- comparing -------------------------------------------------------------------------------------


def differences(runs: Sequence[Run]) -> str:
    """The configs of some runs side by side: only what differs."""
    shown = [run for run in runs if run.config][:COLUMNS]
    if len(shown) < 2:
        return '<p class="faint">Pick two runs or more to see how their configs differ.</p>'
    plain = [flat(_told(run.config)) for run in shown]
    keys = dict.fromkeys(key for one in plain for key in one)
    lines = []
    for key in keys:
        values = [_value(one.get(key)) for one in plain]
        if len(set(values)) > 1:
            marks = ["", *("" if value == values[0] else "other" for value in values)]
            lines.append(html.line([key, *values], len(shown) + 1, marks))
    if not lines:
        return '<p class="faint">Their configs are the same.</p>'
    return html.table(["", *(run.id for run in shown)], lines, len(shown) + 1)


def _told(config: dict[str, Any]) -> dict[str, Any]:
    """The parts of a config that are compared."""
    versions = config.get("protocol", {}).get("versions", {})
    parts = {name: config.get(name, {}) for name in ("env", "options", "teams", "settings")}
    return parts | {"versions": versions}


def _value(value: Any) -> str:
    return "–" if value is None else printable(str(value), 80)


def statistics(runs: Sequence[Run], trust: Trust) -> str:
    """The report's tables of some runs."""
    if len(runs) < 2:
        return '<p class="faint">Pick two runs or more for the statistics of a report.</p>'
    try:
        with of_files(trust):
            study = results.of_folders([run.path for run in runs])
            parts = [html.scores(study), html.remarks(study)]
            if study.comparable and len(study.algorithms) > 1:
                totals = [html.line(tables.total_cells(one), 1) for one in tables.totals(study)]
                parts.append(html.aggregate(study, html.table(tables.TOTAL_HEAD, totals, 1)))
                parts.append(_duels(study))
            return "".join(parts)
    except ShoalError as error:
        return f'<p class="faint">{escape(str(error))}</p>'


def _duels(study: Any) -> str:
    lines = [
        html.line([one, other, tables.number(float(p.value), 2), tables.interval(p, 2)], 2)
        for one, other, p in tables.comparisons(study)
    ]
    head = ("a run of", "beats one of, with probability", "", "95 % CI")
    return html.table(head, lines, 2)


# -- cross-play ------------------------------------------------------------------------------------


def heat_maps(path: Path) -> str:
    """The tables of a crossplay.json as heat maps; a sentence if it is none."""
    try:
        content = json.loads(files.read_bytes(path))
        names = _short([printable(str(name), 80) for name in content["names"]][:LARGEST])
        maps = [
            _heat_map(f"return of one agent of team {team}", names, rows)
            for team, rows in content["returns"].items()
        ]
        maps += [_heat_map(str(name), names, rows) for name, rows in content["metrics"].items()]
        told = f"{content['env']}: rows play {content['rows']}, columns play {content['columns']}"
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return f'<p class="faint">{escape(path.name)} cannot be read</p>'
    return f"<p>{escape(printable(told))}</p>{''.join(maps)}"


def _short(names: list[str]) -> list[str]:
    """Names without the folders that all of them are in."""
    try:
        common = os.path.commonpath(names)
    except ValueError:  # some are absolute, others are not
        return names
    cut = [name.rstrip("/")[len(common) :].lstrip("/") for name in names]
    return cut if all(cut) else names


def _heat_map(title: str, names: list[str], rows: list[list[float]]) -> str:
    values = [[float(x) for x in row[:LARGEST]] for row in rows[:LARGEST]]
    low = min(min(row) for row in values)
    span = max(max(row) for row in values) - low or 1.0
    head = "".join(f"<th scope=col>{escape(name)}</th>" for name in names)
    lines = []
    for name, row in zip(names, values, strict=True):
        cells = "".join(
            f'<td class="heat-{min(int(HEATS * (x - low) / span), HEATS - 1)}">{x:.3g}</td>'
            for x in row
        )
        lines.append(f"<tr><th scope=row>{escape(name)}</th>{cells}</tr>")
    return (
        f'<div class="wide"><table class="heat"><caption>{escape(title)}</caption>'
        f"<thead><tr><td></td>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )

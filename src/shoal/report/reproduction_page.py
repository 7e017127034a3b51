"""The page of a reproduction: our numbers beside the published ones."""

from __future__ import annotations

from html import escape
from pathlib import Path

from ..config.published import Table, Task
from ..files import write_text
from . import figures, html, tables
from .reproduction import (
    MARKS,
    Failed,
    Row,
    cells,
    head,
    ours_in_words,
    remarks,
    score_words,
    tallies,
)

PAGE = "reproduction.html"
PICTURE = "reproduction.png"
STYLE = (
    html.STYLE
    + """
:root { --ahead: #1f7a4d; --behind: #b3382c; }
@media (prefers-color-scheme: dark) { :root { --ahead: #5fce98; --behind: #f0897d; } }
td.ahead { color: var(--ahead); font-weight: 700; }
td.behind { color: var(--behind); font-weight: 700; }
td.level { color: var(--faint); }
body { max-width: 76rem; }
"""
)
TEXT = 2  # columns of words at the beginning


def write(table: Table, found: list[Row], failed: list[Failed], folder: Path) -> None:
    """Write the page, and its picture beside it."""
    picture = figures.beside(_panels(found), (score_words(table), "greedy after training"))
    write_text(folder / PAGE, page(table, found, failed, figures.inline(picture)))
    figures.save(picture, folder / PICTURE)


def page(table: Table, found: list[Row], failed: list[Failed], picture: str) -> str:
    """The whole page as HTML."""
    warned = "".join(f"<p>{escape(remark)}</p>" for remark in remarks(table, found, failed))
    parts = [
        f"<h1>{escape(table.about.title)}</h1>",
        f'<p class="faint">{escape(table.about.source)}</p>',
        *(f"<p><strong>{escape(told)}</strong></p>" for told in tallies(found)),
        f'<div class="warn">{warned}</div>',
        html.section("Beside the published numbers", _rows(table, found)),
        html.section("As a picture", PICTURE_TOLD, picture),
        html.section(
            "Protocols", f"Theirs: {table.about.protocol}", f"Ours: {ours_in_words(table)}"
        ),
        html.section("What the numbers are", _units(table)),
    ]
    return html.document(table.about.title, parts, STYLE)


PICTURE_TOLD = (
    "Dots are our estimates with their intervals, the upright line is the published number; further"
    " right is better."
)


def _panels(found: list[Row]) -> dict[str, list[figures.Beside]]:
    """Rows by task; of several budgets, each is a line."""
    panels: dict[str, list[figures.Beside]] = {}
    for row in found:
        several = sum(one[:2] == row[:2] for one in found) > 1
        name = f"{row.algorithm} {row.share:.3g}×" if several else row.algorithm
        marks = panels.setdefault(row.task.name, [])
        marks.append(figures.Beside(name, row.published, (row.theirs, row.ours)))
    return panels


def _rows(table: Table, found: list[Row]) -> str:
    lines = []
    before = ""
    for row in found:
        told = cells(row)
        kinds = [told[i] if told[i] in MARKS else "" for i in range(len(told))]
        first = row.task.name != before
        told[0] = told[0] if first else ""
        lines.append(html.line(told, TEXT, kinds, "next" if first and before else ""))
        before = row.task.name
    lines += [_absent(task, len(head(table))) for task in table.tasks if task.missing]
    return html.table(head(table), lines, TEXT)


def _absent(task: Task, columns: int) -> str:
    """The line of a task that cannot be trained, across all columns."""
    why = f'<td class="faint" colspan="{columns - 1}">not reproduced: {escape(task.missing)}</td>'
    return f'<tr class="next"><td>{escape(task.name)}</td>{why}</tr>'


def _units(table: Table) -> str:
    lines = [
        html.line([task.name, task.train or tables.NOTHING, task.unit, _formula(task)], 4)
        for task in table.tasks
    ]
    return html.table(("task", "in Shoal", "published number", "from our score s"), lines, 4)


def _formula(task: Task) -> str:
    """The scale, in symbols."""
    factor, offset = task.scale
    times = "s" if factor == 1 else f"{factor:g} s"
    sign = "+" if offset > 0 else "−"
    plus = f" {sign} {abs(offset):g}" if offset else ""
    told = f"{times}{plus}"
    return f"{told}, s = {task.metric}" if task.metric else told

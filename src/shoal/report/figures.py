"""Figures of a study, as SVG in the colours of the surrounding page; the curves also as PNG."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..files import atomic
from ..monitor.curve import plain_texts, short
from .statistics import Estimate, estimate, profile
from .study import Study, Task
from .tables import Comparison, Total, interval, number

COLOURS = ("#3b82c4", "#e07b27", "#2f9e6e", "#9b6fd0", "#d9485f", "#b8901c", "#1aa3a3", "#d66fb0")
DASHES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (6, 2, 1.5, 2)))  # once all colours are used
INK = "#33383d"
FAINT = "#7d8790"
GRID = "#dfe4e8"
IN_PAGE = {INK: "var(--ink)", FAINT: "var(--faint)", GRID: "var(--line)"}
PANEL = (3.5, 2.75)  # inches
CURVES = "curves.png"
# subfolder of all figures as files, and their formats
FIGURES = "figures"
KINDS = (".svg", ".pdf")
LEVELS = 101
NARROWEST = 0.1  # range of an axis beside published numbers, as a share of the largest
LETTERS = 14  # letters of a legend per inch


class Beside(NamedTuple):
    """An algorithm's published number, and two estimates of ours."""

    algorithm: str
    published: float
    ours: tuple[Estimate, Estimate]


def style(study: Study, algorithm: str) -> dict[str, Any]:
    """Line style of an algorithm, the same in every figure."""
    place = study.algorithms.index(algorithm)
    return {
        "color": COLOURS[place % len(COLOURS)],
        "ls": DASHES[place // len(COLOURS) % len(DASHES)],
    }


def curves(study: Study) -> Any:
    """Learning curves, a panel per task: interquartile mean over seeds and its interval."""
    columns = min(len(study.tasks), 2 if len(study.tasks) == 4 else 3)
    lines = -(-len(study.tasks) // columns)
    wide = 1.7 if columns == 1 else 1.0
    figure = _figure(PANEL[0] * columns * wide, PANEL[1] * lines + 0.45)
    panels = figure.subplots(lines, columns, squeeze=False).flatten()
    for axes, task in zip(panels, study.tasks, strict=False):
        _curve(axes, study, task)
    for axes in panels[len(study.tasks) :]:
        axes.set_visible(False)
    for axes in panels[::columns]:
        axes.set_ylabel(study.score, color=INK, fontsize=9)
    handles = {
        label: handle
        for axes in panels
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    _explained(figure, handles)
    return figure


def _curve(axes: Any, study: Study, task: Task) -> None:
    """Draw the curves of one task.

    The range ignores the first evaluation: an untrained net may be far worse than random play."""
    steps = 0.0
    seen = [study.random(task)]
    for algorithm in study.algorithms:
        mine = study.of(task, algorithm)
        if mine:
            grid = mine[0].grid
            steps = max(steps, grid[-1])
            scores = study.scores(task, algorithm)
            look = style(study, algorithm)
            guess = estimate([scores.T])
            # lines of single runs; with several algorithms there would be too many
            if len(study.algorithms) == 1 and len(mine) > 1:
                for place, line in enumerate(scores):
                    axes.plot(
                        grid,
                        line,
                        lw=0.7,
                        alpha=0.4,
                        color=look["color"],
                        label="" if place else "each seed",
                    )
            _band(axes, grid, guess, algorithm, look)
            seen += [value for line in guess if line is not None for value in line[1:]]
    if np.isfinite(seen[0]):  # NaN if no run of this task has finished
        axes.axhline(seen[0], color=FAINT, lw=1.1, ls=(0, (5, 4)), label="random play")
        margin = 0.05 * (max(seen) - min(seen)) or 1.0
        axes.set_ylim(min(seen) - margin, max(seen) + margin)
    axes.set_title(task.label, loc="left", color=INK, fontsize=9.5, fontweight="bold")
    axes.set_xlabel("environment steps", color=INK, fontsize=9)
    axes.xaxis.set_major_formatter(short)
    axes.set_xlim(0, steps or 1)
    axes.locator_params(axis="x", nbins=5)
    _plain(axes)


def profiles(study: Study) -> Any:
    """Performance profiles: the share of runs above every normalised score."""
    scores = {algorithm: study.normalised(algorithm) for algorithm in study.algorithms}
    everything = np.concatenate([runs for strata in scores.values() for runs in strata])
    levels = np.linspace(min(0.0, everything.min()), max(1.0, everything.max()), LEVELS)
    figure = _figure(6.6, 3.3)
    axes = figure.subplots()
    for algorithm, strata in scores.items():
        _band(axes, levels, profile(strata, levels), algorithm, style(study, algorithm))
    axes.set_xlabel("normalised score τ", color=INK, fontsize=9)
    axes.set_ylabel("share of runs above τ", color=INK, fontsize=9)
    axes.set_xlim(levels[0], levels[-1])
    axes.set_ylim(-0.02, 1.02)
    _plain(axes)
    _explained(
        figure,
        {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)},
    )
    return figure


def aggregates(study: Study, totals: Sequence[Total]) -> Any:
    """Interquartile means of normalised scores over all tasks."""
    marks = [
        (total.algorithm, total.iqm, style(study, total.algorithm)["color"]) for total in totals
    ]
    return _dots(marks, "normalised score, interquartile mean over all runs", None)


def comparisons(study: Study, pairs: Sequence[Comparison]) -> Any:
    """Probabilities of improvement, by pair of algorithms."""
    marks = [
        (f"{d.one} over {d.other}", d.probability, style(study, d.one)["color"]) for d in pairs
    ]
    return _dots(marks, "probability that a run of the one beats a run of the other", 0.5)


def beside(panels: dict[str, list[Beside]], legend: tuple[str, str]) -> Any:
    """Our numbers beside published ones: a panel per task, a line per algorithm.

    `legend` names the two estimates of ours."""
    columns = min(len(panels), 3)
    lines = -(-len(panels) // columns)
    most = max(len(marks) for marks in panels.values())
    figure = _figure(
        PANEL[0] * columns * (1.7 if columns == 1 else 1), lines * (0.8 + 0.34 * most) + 0.4
    )
    axes_of = figure.subplots(lines, columns, squeeze=False).flatten()
    for axes, (task, marks) in zip(axes_of, panels.items(), strict=False):
        _beside(axes, task, marks, legend)
    for axes in axes_of[len(panels) :]:
        axes.set_visible(False)
    handles, names = axes_of[0].get_legend_handles_labels()
    _explained(figure, dict(zip(names, handles, strict=True)))
    return figure


def _beside(axes: Any, task: str, marks: list[Beside], legend: tuple[str, str]) -> None:
    for place, one in enumerate(reversed(marks)):
        first = place == 0
        for shift, guess, colour, name in zip(
            (0.15, -0.15), one.ours, COLOURS, legend, strict=False
        ):
            y = place + shift
            if guess.low is not None and guess.high is not None:
                axes.plot([guess.low, guess.high], [y, y], color=colour, lw=5, alpha=0.35)
            axes.plot([guess.value], [y], "o", color=colour, ms=5, label=name if first else "")
        axes.plot(
            [one.published] * 2,
            [place - 0.36, place + 0.36],
            color=INK,
            lw=1.6,
            label="published" if first else "",
        )
    axes.set_yticks(range(len(marks)), [one.algorithm for one in reversed(marks)])
    axes.set_ylim(-0.6, len(marks) - 0.4)
    low, high = axes.get_xlim()
    more = max(NARROWEST * max(abs(low), abs(high)) - (high - low), 0) / 2
    axes.set_xlim(low - more, high + more)
    axes.locator_params(axis="x", nbins=5)
    axes.ticklabel_format(axis="x", useOffset=False)
    axes.set_title(task, loc="left", color=INK, fontsize=9.5, fontweight="bold")
    _plain(axes, "x")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)


def _dots(marks: list[tuple[str, Estimate, str]], about: str, middle: float | None) -> Any:
    """Draw a dot with its interval on each line, the first on top."""
    figure = _figure(6.6, 0.75 + 0.27 * len(marks))
    axes = figure.subplots()
    for place, (_, guess, colour) in enumerate(reversed(marks)):
        if guess.low is not None and guess.high is not None:
            axes.plot(
                [guess.low, guess.high],
                [place, place],
                color=colour,
                lw=6,
                alpha=0.35,
                solid_capstyle="butt",
            )
        axes.plot([guess.value], [place], "o", color=colour, ms=6, clip_on=False)
        told = f"{number(float(guess.value), 2)}  {interval(guess, 2).strip('–')}"
        axes.annotate(
            told,
            (1.02, place),
            xycoords=("axes fraction", "data"),
            va="center",
            fontsize=8.5,
            color=INK,
        )
    axes.set_yticks(range(len(marks)), [name for name, *_ in reversed(marks)])
    axes.set_ylim(-0.6, len(marks) - 0.4)
    if middle is not None:
        axes.axvline(middle, color=FAINT, lw=1.1, ls=(0, (5, 4)), zorder=0)
        axes.set_xlim(0, 1.0)
    axes.set_xlabel(about, color=INK, fontsize=9)
    _plain(axes, "x")
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    return figure


def _band(axes: Any, x: np.ndarray, guess: Estimate, label: str, how: dict[str, Any]) -> None:
    axes.plot(x, guess.value, lw=1.8, label=label, **how)
    if guess.low is not None and guess.high is not None:
        axes.fill_between(x, guess.low, guess.high, color=how["color"], alpha=0.2, lw=0)


def _plain(axes: Any, lines: str = "y") -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.grid(axis=lines, color=GRID, lw=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(color=FAINT, labelcolor=INK, labelsize=8.5)


def _explained(figure: Any, handles: dict[str, Any]) -> None:
    """Add a legend above the panels, in as many columns as fit; entries that are no algorithm come
    last."""
    handles |= {name: handles.pop(name) for name in ("each seed", "random play") if name in handles}
    columns = int(figure.get_figwidth() * LETTERS / (max(map(len, handles), default=0) + 6))
    look = {
        "frameon": False,
        "fontsize": 9,
        "labelcolor": INK,
        "handlelength": 1.6,
        "columnspacing": 1.4,
    }
    place = {"loc": "outside upper left", "ncols": min(max(columns, 1), 6)}
    figure.legend(handles.values(), handles.keys(), **look, **place)


def _figure(width: float, height: float) -> Any:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Any, path: Path) -> None:
    """Write a figure to a file, in the format of its suffix."""
    from matplotlib import rc_context

    kind = path.suffix[1:]
    # no dates: equal runs give equal files
    dates = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}.get(kind)
    with atomic(path) as temporary, rc_context({"svg.hashsalt": "shoal", "pdf.fonttype": 42}):
        plain_texts(figure)
        figure.savefig(temporary, format=kind, dpi=130, facecolor="white", metadata=dates)


def inline(figure: Any) -> str:
    """A figure as inline SVG: text stays text, nothing external is used, colours are the page's."""
    from matplotlib import rc_context

    drawn = io.StringIO()
    nobody = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "shoal"}):
        plain_texts(figure)
        figure.savefig(drawn, format="svg", transparent=True, metadata=nobody)
    text = drawn.getvalue()
    text = re.sub(r' xmlns(:xlink)?="[^"]*"', "", text[text.index("<svg") :])
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"'DejaVu Sans'[^;\"]*", "system-ui, sans-serif", text)
    for ink, variable in IN_PAGE.items():
        text = text.replace(ink, variable)
    return text

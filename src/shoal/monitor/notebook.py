"""A run in a notebook: its progress and curve as HTML that is updated in place, and films."""

from __future__ import annotations

import base64
import html
import math
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ..render.draw import team_colours
from ..store.metrics_file import RATE, returns_in
from .callbacks import Evaluated, LiveRun
from .console import Console, listed

EVERY = 0.5  # seconds between two updates
LINES = 4  # sentences that stay
POINTS = 300  # of a line of the curve
WIDTH = 640
HEIGHT = 220
MARGIN = 46
PAGE = """\
<div style="font-family:sans-serif;font-size:13px;max-width:{width}px">
<div style="background:#8883;height:6px"><div style="background:#1f6f8b;height:6px;\
width:{done:.1%}"></div></div>
<div>{line}</div>{curve}{said}</div>"""


def shown(quiet: bool) -> Console:
    """What shows a run: HTML in a notebook, the console elsewhere."""
    return Notebook() if not quiet and in_notebook() else Console(quiet)


def in_notebook() -> bool:
    """Whether a Jupyter kernel runs this process."""
    interactive = sys.modules.get("IPython")
    shell = interactive.get_ipython() if interactive else None
    return hasattr(shell, "kernel")


class Notebook(Console):
    """Shows one run in a notebook."""

    def __init__(self) -> None:
        super().__init__()
        self.said_lines: list[str] = []
        self.line = ""
        self.done = 0.0
        self.training_returns: dict[str, list[tuple[float, float]]] = {}
        self.evaluations: dict[str, list[tuple[float, float]]] = {}
        self.handle: Any = None
        self.updated = 0.0

    def say(self, text: str) -> None:
        self.said_lines = [*self.said_lines, text][-LINES:]
        self.update()

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        start = time.monotonic()
        self.say(f"{text} …")
        yield
        self.said_lines.pop()
        self.say(f"{text} took {time.monotonic() - start:.1f} s")

    def on_iteration(self, run: LiveRun, values: dict[str, float]) -> None:
        total = run.config.settings.steps
        left = max(total - run.steps, 0) / max(values[RATE], 1e-9)
        returns = returns_in(values, run.config.sides)
        for team, value in returns.items():
            self.training_returns.setdefault(team, []).append((run.steps, value))
        self.done = min(run.steps / total, 1.0)
        self.line = f"{run.steps:,} of {total:,} steps, {values[RATE]:,.0f}/s, {left:.0f} s left"
        self.line += f", training return {listed(returns)}" if returns else ""
        if time.monotonic() - self.updated > EVERY:
            self.update()

    def on_evaluation(self, run: LiveRun, played: Evaluated) -> None:
        for team, score in played.score().items():
            self.evaluations.setdefault(team, []).append((run.steps, score))
        super().on_evaluation(run, played)

    def update(self) -> None:
        """Show the newest state in the place of the one before."""
        from IPython.display import HTML, display

        self.updated = time.monotonic()
        page = HTML(self.page())
        if self.handle is None:
            self.handle = display(page, display_id=True)
        else:
            self.handle.update(page)

    def page(self) -> str:
        """The HTML: a bar, the newest numbers, the curve and the last sentences."""
        lines = "".join(f"<div>{html.escape(text)}</div>" for text in self.said_lines)
        drawn = curve(self.evaluations, self.training_returns) if self.evaluations else ""
        line = html.escape(self.line)
        return PAGE.format(width=WIDTH, done=self.done, line=line, curve=drawn, said=lines)


Points = Sequence[tuple[float, float]]


def curve(evaluations: Mapping[str, Points], training: Mapping[str, Points]) -> str:
    """An SVG of returns by team: evaluations as thick lines, training as thin ones."""
    every = [*evaluations.values(), *training.values()]
    everything = [point for one in every for point in one if math.isfinite(point[1])]
    steps, values = zip(*(everything or [(0.0, 0.0)]), strict=True)
    end = max(*steps, 1)
    low = min(values)
    high = max(values)
    span = high - low or 1.0

    def at(point: tuple[float, float]) -> str:
        x = MARGIN + (WIDTH - MARGIN - 8) * point[0] / end
        y = 8 + (HEIGHT - 28) * (high - point[1]) / span
        return f"{x:.1f},{y:.1f}"

    colours = team_colours(list(evaluations))
    drawn: list[str] = []
    for lines, style in ((training, "1' opacity='0.45"), (evaluations, "2.4")):
        for team, points in lines.items():
            finite = [point for point in points if math.isfinite(point[1])]
            told = " ".join(map(at, finite[:: max(len(finite) // POINTS, 1)]))
            colour = colours.get(team, "#888")
            drawn.append(
                f"<polyline points='{told}' fill='none' stroke='{colour}' stroke-width='{style}'/>"
            )
    labels = [
        (MARGIN - 4, 14, f"{high:.4g}"),
        (MARGIN - 4, HEIGHT - 18, f"{low:.4g}"),
        (WIDTH - 8, HEIGHT - 4, f"{end:,} steps"),
    ]
    texts = [
        f"<text x='{x}' y='{y}' text-anchor='end' font-size='11' fill='#888'>{text}</text>"
        for x, y, text in labels
    ]
    names = [
        f"<tspan fill='{colours.get(team, '#888')}'>{html.escape(team)} </tspan>"
        for team in evaluations
    ]
    legend = f"<text x='{MARGIN}' y='{HEIGHT - 4}' font-size='11'>{''.join(names)}</text>"
    inner = "".join([*drawn, *texts, legend])
    return f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' height='{HEIGHT}'>{inner}</svg>"


class Film(NamedTuple):
    """A video file, which a notebook shows inline."""

    path: Path

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.path.read_bytes()).decode()
        if self.path.suffix == ".gif":
            return f"<img src='data:image/gif;base64,{data}'>"
        return f"<video controls autoplay loop src='data:video/mp4;base64,{data}'></video>"

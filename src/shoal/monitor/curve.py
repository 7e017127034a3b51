"""The learning curve as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..engine.episodes import Episodes
from ..files import atomic
from ..store.metrics_file import CurvePoint

INK = "#33383d"
LINE = "#1f6f8b"
FAINT = "#9aa5ad"


def draw(
    path: Path,
    title: str,
    points: list[CurvePoint],
    training: list[tuple[int, dict[str, float]]],
    random: Episodes | None,
) -> None:
    """Draw one panel per team: evaluations with the middle half of their episodes, training
    returns, and the return of random play, if it was played."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    teams = list(points[0].played.returns)
    figure = Figure(figsize=(1.2 + 5.8 * len(teams), 4.4), layout="constrained", dpi=130)
    FigureCanvasAgg(figure)
    figure.suptitle(title, x=0.01, ha="left", color=INK, fontsize=11, fontweight="bold")
    for axes, team in zip(figure.subplots(1, len(teams), squeeze=False)[0], teams, strict=True):
        _panel(axes, team, points, training, random and float(random.returns[team].mean()))
    plain_texts(figure)
    with atomic(path) as temporary:
        figure.savefig(temporary, format="png")


def plain_texts(figure: Any) -> None:
    """Show a dollar sign in a name as such, not as the start of a formula."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)


def _panel(
    axes: Any, team: str, points: list[CurvePoint], training: list, level: float | None
) -> None:
    steps = np.array([point.step for point in points])
    # [points,episodes]
    episodes = np.stack([point.played.returns[team].mean(1) for point in points])
    low, high = np.quantile(episodes, (0.25, 0.75), axis=1)
    seen = [(step, returns[team]) for step, returns in training if team in returns]
    if seen:
        axes.plot(*zip(*seen, strict=True), color=FAINT, lw=0.9, label="training, exploring")
    axes.fill_between(
        steps, low, high, color=LINE, alpha=0.16, lw=0, label="middle half of episodes"
    )
    axes.plot(
        steps,
        episodes.mean(1),
        color=LINE,
        lw=1.8,
        marker="o",
        ms=4,
        clip_on=False,
        label="evaluation, mean",
    )
    if level is not None:
        axes.axhline(level, color=INK, lw=1.1, ls=(0, (5, 4)), label=f"random play ({level:.1f})")
    axes.set_xlabel("environment steps", color=INK)
    axes.set_ylabel(f"return of one agent of team {team}", color=INK)
    axes.xaxis.set_major_formatter(short)
    axes.set_xlim(0, max(steps[-1], 1))
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e3e7ea", lw=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK, labelsize=9)
    axes.legend(frameon=False, fontsize=8.5, labelcolor=INK)
    _clock(axes, steps, np.array([point.seconds for point in points]))


def _clock(axes: Any, steps: np.ndarray, seconds: np.ndarray) -> None:
    """Add a second axis on top: seconds of training."""
    from matplotlib.ticker import MaxNLocator

    if seconds[-1] <= 0:
        return
    ticks = [
        tick for tick in MaxNLocator(5).tick_values(0, seconds[-1]) if 0 <= tick <= seconds[-1]
    ]
    top = axes.twiny()
    top.set_xlim(axes.get_xlim())
    top.set_xticks(np.interp(ticks, seconds, steps), [f"{tick:g} s" for tick in ticks])
    top.tick_params(colors=FAINT, labelsize=8, length=3)
    top.spines[["top", "right", "left", "bottom"]].set_visible(False)


def short(value: float, _: Any = None) -> str:
    """A short label of a number: 2500000 -> 2.5M."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:g}"

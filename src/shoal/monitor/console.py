"""Console output of a run: a live line on a terminal, plain lines elsewhere, nothing when quiet."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..config.trust import needed
from ..engine.episodes import Episodes
from ..envs.host.faults import Fault
from ..errors import printable
from ..store import folder
from ..store.metrics_file import RATE, metrics_in, returns_in
from ..store.summary import Result
from .callbacks import Callback, Evaluated, LiveRun

NARROW = 100  # columns
PLAIN_EVERY = 5.0  # seconds between two plain progress lines
BROKE = {
    "training": "an episode broke and was dropped",
    "evaluation": "an episode of the evaluation broke and was played again",
}


def on_terminal() -> bool:
    """Whether stdout is a terminal; stdout may be None."""
    return sys.stdout is not None and not sys.stdout.closed and sys.stdout.isatty()


def tell(text: str) -> None:
    """Print a line; characters that stdout cannot encode are replaced."""
    if sys.stdout is not None and not sys.stdout.closed:
        encoding = sys.stdout.encoding or "utf-8"
        print(printable(text).encode(encoding, "replace").decode(encoding), flush=True)


def _narrow() -> bool:
    """Whether the terminal is too narrow for a whole line."""
    return shutil.get_terminal_size().columns < NARROW


class Console(Callback):
    """Shows one run on the console."""

    def __init__(self, quiet: bool = False):
        self.quiet = quiet
        self.live = not quiet and on_terminal()
        self.bar: Any = None
        self.said = time.monotonic()

    def say(self, text: str) -> None:
        """Print a permanent line."""
        if self.bar is not None:
            self.bar.console.print(printable(text), highlight=False, markup=False)
        elif not self.quiet:
            tell(text)

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """Show a message and the seconds passed, during something slow."""
        start = time.monotonic()
        if self.live:
            from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            columns = SpinnerColumn(), TextColumn("{task.description} …"), TimeElapsedColumn()
            with Progress(*columns, transient=True) as bar:
                bar.add_task(text)
                yield
        else:
            self.say(f"{text} …")
            yield
        self.say(f"{text} took {time.monotonic() - start:.1f} s")

    @contextmanager
    def training(self, total: int) -> Iterator[None]:
        """Show the live line while training runs."""
        if not self.live:
            yield
            return
        from rich.progress import BarColumn, Progress, TextColumn

        bar = () if _narrow() else (BarColumn(12),)
        with Progress(
            *bar, TextColumn("{task.fields[line]}", markup=False), transient=True
        ) as self.bar:
            self.bar.add_task("", total=total, line="")
            yield
        self.bar = None

    def on_iteration(self, run: LiveRun, values: dict[str, float]) -> None:
        total = run.config.settings.steps
        left = max(total - run.steps, 0) / max(values[RATE], 1e-9)
        returns = listed(returns_in(values, run.config.sides))
        metrics = listed(metrics_in(values, run.config.sides))
        if self.live and _narrow():
            line = f"{min(run.steps / total, 1):.0%}, {left:.0f} s"
            line += f", {returns}" if returns else ""
        else:
            line = f"{run.steps:,} of {total:,} steps, {values[RATE]:,.0f}/s, {left:.0f} s left"
            line += f", training return {returns}" if returns else ""
            line += f", {metrics}" if metrics else ""
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=min(run.steps, total), line=line)
        elif not self.quiet and time.monotonic() - self.said > PLAIN_EVERY:
            self.said = time.monotonic()
            tell(line)

    def on_evaluation(self, run: LiveRun, played: Evaluated) -> None:
        kind = "greedy" if run.config.settings.greedy else "sampled"
        metrics = f", {listed(played.means())}" if played.metrics else ""
        best = ", the best so far" if played.best and run.steps else ""
        self.say(
            f"evaluation at {run.steps:,} steps: {listed(played.score())} (mean return,"
            f" {len(played.length)} {kind} episodes){metrics}{best}"
        )
        for team in opposed(played) if not run.steps else ():
            self.say(
                f"the agents of team {team} earn what others of it lose, so that its score is"
                f" always 0: they should play against each other, in teams of their own (of an"
                f" environment on the host: --env.teams each)"
            )

    def on_faults(self, run: LiveRun, faults: Sequence[Fault], during: str) -> None:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        self.say(f"{BROKE[during]}{more}: {faults[-1]}")

    def on_end(self, run: LiveRun, result: Result) -> None:
        rate = result.steps / max(result.seconds, 1e-9)
        self.say(f"{result.steps:,} steps in {result.seconds:.1f} s: {rate:,.0f} steps/s")
        for team, score in result.scores.items():
            random = f"random {result.random[team]:.2f}, " if result.random else ""
            self.say(f"team {team}: {random}before {result.before[team]:.2f}, after {score:.2f}")
        for name, value in result.metrics.items():
            random = f"random {result.random_metrics[name]:.2f}, " if result.random_metrics else ""
            self.say(f"{name}: {random}after {value:.2f}")
        if result.best:
            best = result.best
            who = f"team {best.team}" if best.team in result.scores else best.team
            place = result.path / folder.BEST
            self.say(f"best: {who} {best.score:.2f} after {best.steps:,} steps: {place}")
        self.say(f"policy: {result.path / folder.POLICY}   curve: {result.path / folder.CURVE}")
        flag = needed(run.config.to_json())
        if result.stopped:
            self.say(
                f"stopped before its {run.config.settings.steps:,} steps: shoal resume"
                f" {result.path}{flag} goes on"
            )
        elif flag:
            self.say(
                f"to play it again: shoal evaluate {result.path}{flag}, as the environment is"
                f" one's own"
            )


def opposed(played: Episodes) -> list[str]:
    """Teams whose agents' returns sum to zero in every episode."""
    return [
        team
        for team, rows in played.returns.items()
        if rows.any() and np.allclose(rows.sum(1), 0.0, atol=1e-6)
    ]


def listed(scores: dict[str, float]) -> str:
    """Scores in words: `adversary 3.21, agent -4.56`."""
    return ", ".join(f"{team} {score:.2f}" for team, score in scores.items())

"""Progress of several runs: a live table on a terminal, plain lines elsewhere, nothing when
quiet."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..monitor.console import PLAIN_EVERY, listed, on_terminal, tell
from .progress import FAILED, FINISHED, Follower, Outcome, Progress
from .runner import Status

ROWS = 16  # most runs shown one by one; of more runs, only those running or failed
COLOURS = {FAILED: "red", FINISHED: "green"}


class LiveTable:
    """Shows the progress of several runs."""

    def __init__(self, paths: Sequence[Path], quiet: bool = False):
        self.followers = {path: Follower(path) for path in paths}
        self.quiet = quiet
        self.reported = set[Path]()  # runs whose end was printed
        self.printed = time.monotonic()  # time of the last look at a plain line
        self.line = ""  # the last one printed
        self.live: Any = None
        if not quiet and on_terminal():
            from rich.console import Console
            from rich.live import Live

            self.live = Live(console=Console(markup=False), refresh_per_second=4)

    def __enter__(self) -> LiveTable:
        if self.live:
            self.live.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.live:
            self.live.stop()

    def show(self, running: Mapping[Path, Status], outcomes: dict[Path, Outcome]) -> None:
        """Show the state of every run."""
        for path in (*running, *outcomes):
            self.followers.setdefault(path, Follower(path))
        if self.quiet:
            return
        if self.live:
            self.live.update(self._table(running, outcomes))
            return
        for path in [path for path in outcomes if path not in self.reported]:
            self.reported.add(path)
            tell(f"{path.name}: {_ending(outcomes[path], self.followers[path].progress())}")
        if time.monotonic() - self.printed > PLAIN_EVERY and running:
            self.printed = time.monotonic()
            states = [f"{path.name} {_brief(status)}" for path, status in running.items()]
            left = len(self.followers) - len(outcomes) - len(running)
            line = "   ".join(states) + (f"   {left} waiting" if left else "")
            if line != self.line:
                self.line = line
                tell(line)

    def _table(self, running: Mapping[Path, Status], outcomes: dict[Path, Outcome]) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        columns = ["run", "", "steps", "steps/s", "left", "mean return"]
        placed = any(status.where for status in running.values())
        table = Table(*columns, *["node"] * placed, box=None, pad_edge=False)
        for column in table.columns[2:5]:
            column.justify = "right"
        many = len(self.followers) > ROWS
        for path, follower in self.followers.items():
            outcome = outcomes.get(path)
            if many and path not in running and (outcome is None or outcome.state != FAILED):
                continue
            status = running.get(path)
            now = status.progress if status else follower.progress()
            bar = ProgressBar(
                total=max(now.total, 1), completed=min(now.steps, now.total), width=20
            )
            pace = [f"{now.rate:,.0f}" if now.rate else "", _left(now) if path in running else ""]
            state = Text(
                _state(path in running, outcome, now),
                COLOURS.get(outcome.state, "") if outcome else "",
            )
            steps = f"{now.steps:,}" if now.total else ""
            node = [status.where if status else ""] * placed
            table.add_row(path.name, bar, steps, *pace, state, *node)
        if many:
            done = sum(outcome.state == FINISHED for outcome in outcomes.values())
            waiting = len(self.followers) - len(outcomes) - len(running)
            table.add_row(f"{done} of {len(self.followers)} finished, {waiting} waiting")
        return table


def _state(running: bool, outcome: Outcome | None, now: Progress) -> str:
    """The last column: scores, or why there are none."""
    scores = listed(now.scores | now.metrics)
    if outcome and outcome.state != FINISHED:
        return f"{outcome.state}: {outcome.message}" if outcome.message else outcome.state
    if not running and not outcome:
        return "waiting"
    return scores or ("compiling" if running else "")


def _ending(outcome: Outcome, now: Progress) -> str:
    """How a run ended, in one line."""
    why = f": {outcome.message}" if outcome.message else ""
    scores = (
        f", mean return {listed(now.scores)}" if now.scores and outcome.state == FINISHED else ""
    )
    scores += f", {listed(now.metrics)}" if scores and now.metrics else ""
    return f"{outcome.state}{why}{scores}"


def _brief(status: Status) -> str:
    now = status.progress
    place = f" on {status.where}" if status.where else ""
    if not now.total or not now.steps:
        return f"compiling{place}"
    return f"{min(now.steps / now.total, 1.0):.0%}, {now.rate:,.0f}/s{place}"


def _left(now: Progress) -> str:
    return f"{max(now.total - now.steps, 0) / now.rate:.0f} s" if now.rate else ""

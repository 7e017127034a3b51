"""What a run shows while it runs: a live line on a terminal, plain lines elsewhere, nothing when
quiet."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import printable

NARROW = 100  # columns
PLAIN_EVERY = 5.0  # seconds between two plain progress lines


def on_terminal() -> bool:
    """Whether somebody looks on as it is written; there may be no stdout at all."""
    return sys.stdout is not None and not sys.stdout.closed and sys.stdout.isatty()


def tell(text: str) -> None:
    """A line, as far as stdout can write it."""
    if sys.stdout is not None and not sys.stdout.closed:
        encoding = sys.stdout.encoding or "utf-8"
        print(printable(text).encode(encoding, "replace").decode(encoding), flush=True)


def _narrow() -> bool:
    """Whether a whole line has no room: then it tells what matters most."""
    return shutil.get_terminal_size().columns < NARROW


class Console:
    """Talks about one run."""

    def __init__(self, quiet: bool = False):
        self.quiet = quiet
        self.live = not quiet and on_terminal()
        self.bar: Any = None
        self.said = time.monotonic()

    def say(self, text: str) -> None:
        """A line that stays."""
        if self.bar is not None:
            self.bar.console.print(printable(text), highlight=False, markup=False)
        elif not self.quiet:
            tell(text)

    @contextmanager
    def waiting(self, text: str) -> Iterator[None]:
        """While something takes long: what it is, and for how long already."""
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
        """While training runs."""
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

    def progress(
        self,
        steps: int,
        total: int,
        rate: float,
        returns: dict[str, float],
        metrics: dict[str, float] | None = None,
    ) -> None:
        """How far training is."""
        left = max(total - steps, 0) / max(rate, 1e-9)
        line = f"{steps:,} of {total:,} steps, {rate:,.0f}/s, {left:.0f} s left"
        if returns:
            line += f", training return {named(returns)}"
        if metrics:
            line += f", {named(metrics)}"
        if self.live and _narrow():
            line = f"{min(steps / total, 1):.0%}, {left:.0f} s" + (
                f", {named(returns)}" if returns else ""
            )
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=min(steps, total), line=line)
        elif not self.quiet and time.monotonic() - self.said > PLAIN_EVERY:
            self.said = time.monotonic()
            tell(line)


def named(scores: dict[str, float]) -> str:
    """`adversary 3.21, agent -4.56`."""
    return ", ".join(f"{team} {score:.2f}" for team, score in scores.items())

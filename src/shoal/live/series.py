"""A run's metrics.jsonl read as it grows, kept as short series."""

from __future__ import annotations

import json
import math
import os
import threading
from array import array
from collections import OrderedDict
from pathlib import Path
from typing import Any

from ..errors import printable
from ..files import refuse_special
from ..store.folder import METRICS
from ..store.metrics_file import SECONDS, STEP

POINTS = 600  # most points of a series; beyond them, neighbours are averaged
NAMES = 400  # most metrics of a run
CHUNK = 1 << 20  # bytes read at once
LINE = 1 << 20  # longest line that is kept while its end is not there yet
REMARKS = 10  # most metrics of which it is said that they were no numbers
KEPT = 8_000  # series kept of all runs together; the run not asked for longest goes first


class Series:
    """A metric's points; each is the mean of `stride` log points."""

    def __init__(self) -> None:
        self.stride = 1
        self.columns = (array("d"), array("d"), array("d"))  # steps, seconds, values
        self.sums = [0.0, 0.0, 0.0]  # of the log points that do not make a whole point yet
        self.count = 0

    def add(self, step: float, seconds: float, value: float) -> None:
        """Add a log point."""
        for i, x in enumerate((step, seconds, value)):
            self.sums[i] += x
        self.count += 1
        if self.count == self.stride:
            self._push()
        if len(self.columns[0]) >= POINTS:
            self._halve()

    def points(self) -> tuple[list[float], list[float], list[float]]:
        """Steps, seconds and values, with the last point as far as it is there."""
        rest = [x / self.count for x in self.sums] if self.count else None
        steps, seconds, values = (list(column) for column in self.columns)
        if rest:
            steps.append(rest[0])
            seconds.append(rest[1])
            values.append(rest[2])
        return steps, seconds, values

    def _push(self) -> None:
        for i, column in enumerate(self.columns):
            column.append(self.sums[i] / self.count)
            self.sums[i] = 0.0
        self.count = 0

    def _halve(self) -> None:
        """Average neighbours."""
        self.columns = tuple(  # type: ignore[assignment]
            array("d", ((a + b) / 2 for a, b in zip(column[::2], column[1::2], strict=True)))
            for column in self.columns
        )
        self.stride *= 2


class Tail:
    """All series of one run; `update` reads only what was appended since."""

    def __init__(self, run: Path):
        self.path = run / METRICS
        self.series: dict[str, Series] = {}
        self.offset = 0
        self.part = b""  # a line whose end is not there yet
        self.file = (0, 0)  # device and inode
        self.bad = 0  # lines that are no log points
        self.strange: dict[str, int] = {}  # by metric: log points at which it was no finite number

    def update(self) -> None:
        """Read on. A file that became shorter, as when a run is resumed, is read anew."""
        try:
            refuse_special(self.path)
            with self.path.open("rb") as file:
                about = os.fstat(file.fileno())
                place = (about.st_dev, about.st_ino)
                if place != self.file or about.st_size < self.offset:
                    self._forget()
                    self.file = place
                file.seek(self.offset)
                while self.offset < about.st_size and (chunk := file.read(CHUNK)):
                    self.offset += len(chunk)
                    self._feed(chunk)
        except OSError:
            return

    def _forget(self) -> None:
        self.series = {}
        self.offset = 0
        self.part = b""
        self.bad = 0
        self.strange = {}

    def _feed(self, chunk: bytes) -> None:
        *lines, self.part = (self.part + chunk).split(b"\n")
        for line in lines:
            if line.strip():
                self._line(line)
        if len(self.part) > LINE:
            self.part = b""
            self.bad += 1

    def _line(self, line: bytes) -> None:
        try:
            values = json.loads(line)
            step = float(values.pop(STEP))
            seconds = float(values.pop(SECONDS, math.nan))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            self.bad += 1
            return
        for name, value in values.items():
            if type(value) not in (int, float) or not math.isfinite(value):
                if name in self.strange or len(self.strange) < NAMES:
                    self.strange[name] = self.strange.get(name, 0) + 1
                continue
            if name not in self.series:
                if len(self.series) >= NAMES:
                    continue
                self.series[name] = Series()
            self.series[name].add(step, seconds, value)

    def remarks(self) -> list[str]:
        """What a reader of the curves should know, in sentences."""
        told = [
            f"{printable(name, 80)} was not a finite number at {count:,} log points"
            for name, count in list(self.strange.items())[:REMARKS]
        ]
        lines = f"lines of {METRICS} that are no log points and were left out: {self.bad:,}"
        return [*told, lines] if self.bad else told


class Library:
    """The series of the runs that were asked for lately; memory is bounded by `most` series.

    Runs are read one after another: read all at once, the first would be there with the last."""

    def __init__(self, most: int = KEPT):
        self.most = most
        self.tails: OrderedDict[Path, Tail] = OrderedDict()
        self.lock = threading.RLock()

    def of(self, run: Path) -> Tail:
        """A run's series up to now."""
        with self.lock:
            tail = self.tails.pop(run, None) or Tail(run)
            self.tails[run] = tail
            tail.update()
            while len(self.tails) > 1 and self.size > self.most:
                self.tails.popitem(last=False)
            return tail

    def json(self, run: Path, names: list[str]) -> dict[str, Any]:
        """A run's series up to now, as JSON's types."""
        with self.lock:
            return as_json(self.of(run), names)

    @property
    def size(self) -> int:
        return sum(len(tail.series) for tail in self.tails.values())


def as_json(tail: Tail, names: list[str] | None = None) -> dict[str, Any]:
    """A run's series by metric, all or those named; numbers to six digits."""
    found = list(tail.series) if names is None else [name for name in names if name in tail.series]
    return {
        "remarks": tail.remarks(),
        "metrics": sorted(tail.series),
        "series": {
            name: {
                part: [_short(x) for x in column]
                for part, column in zip(
                    ("step", "seconds", "value"), tail.series[name].points(), strict=True
                )
            }
            for name in found
        },
    }


def _short(x: float) -> float | None:
    return float(f"{x:.6g}") if math.isfinite(x) else None

"""What a search varies: `lr=1e-4..1e-2:log`, `gamma=0.9,0.95,0.99`."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ShoalError
from .flags import whole

LOG = "log"
INSTALL = "a search needs Optuna: pip install 'shoal[sweep]'"
MOST = 10_000  # points of a grid


@dataclass(frozen=True)
class Dimension:
    """An option that a search varies: over a range, or over some values."""

    name: str
    low: float = 0
    high: float = 0
    log: bool = False
    whole: bool = False
    count: int = 0  # points of the range in a grid
    values: tuple[Any, ...] = ()  # instead of a range

    @property
    def ends(self) -> tuple[Any, Any]:
        """The first and the last value."""
        if self.values:
            return self.values[0], self.values[-1]
        return self.clamped(self.low), self.clamped(self.high)

    def grid(self) -> Sequence[Any]:
        """The points of a grid."""
        if self.values:
            return self.values
        if not self.count:
            raise ShoalError(
                f"a grid needs to know how many values {self.name} has: as in"
                f" {self.name}={self.low:g}..{self.high:g}:5, or list them"
            )
        space = np.geomspace if self.log else np.linspace
        points = [self.clamped(float(point)) for point in space(self.low, self.high, self.count)]
        return list(dict.fromkeys(points))

    def clamped(self, value: float) -> Any:
        """A number within the range, rounded if it is a range of whole numbers."""
        inside = min(max(value, self.low), self.high)
        return round(inside) if self.whole else inside

    def draw(self, rng: np.random.Generator) -> Any:
        """A value at random."""
        if self.values:
            return self.values[int(rng.integers(len(self.values)))]
        if self.log:
            return self.clamped(math.exp(rng.uniform(math.log(self.low), math.log(self.high))))
        return self.clamped(rng.uniform(self.low, self.high))


def parse(words: Iterable[str]) -> list[Dimension]:
    """Parse what `--over` says, once for each option."""
    found = [_dimension(word) for word in words]
    names = [one.name for one in found]
    if not found:
        raise ShoalError("say what to vary: --over lr=1e-4..1e-2:log --over gamma=0.9,0.99")
    if len(set(names)) < len(names):
        raise ShoalError("each option is varied by one --over: leave out the other")
    return found


def _dimension(word: str) -> Dimension:
    name, equals, said = word.partition("=")
    name = name.removeprefix("--").replace("-", "_")
    if not equals or not name or not said:
        raise ShoalError(
            f"--over needs an option and its values, such as lr=1e-4..1e-2:log, not {word!r}"
        )
    if ".." not in said:
        values = tuple(_plain(one) for one in said.split(","))
        if len(set(map(str, values))) < len(values):
            raise ShoalError(f"{word!r} has a value twice: list each once")
        return Dimension(name, values=values)
    ends, *more = said.split(":")
    log = LOG in more
    counts = [one for one in more if one != LOG]
    low, _, high = ends.partition("..")
    try:
        exact = all(end.lstrip("+-").isdigit() for end in (low, high))
        count = whole(counts[0]) if counts else 0
        made = Dimension(name, float(low), float(high), log, exact, count)
    except ValueError:
        raise ShoalError(f"{word!r} is no range: write it as lr=1e-4..1e-2 or ..1e-2:log") from None
    if not made.low < made.high or (log and made.low <= 0) or len(counts) > 1 or count < 0:
        raise ShoalError(f"{word!r} is no range: the first end is smaller, with log more than 0")
    return made


def _plain(word: str) -> Any:
    """A value as JSON writes it, or text."""
    try:
        return json.loads({"True": "true", "False": "false"}.get(word, word))
    except ValueError:
        return word


def flags(values: dict[str, Any]) -> list[str]:
    """Values of options as arguments of `shoal train`."""
    words: list[str] = []
    for name, value in values.items():
        team, dot, option = name.replace("_", "-").rpartition(".")
        if isinstance(value, bool):
            words.append(f"--{team}{dot}{'' if value else 'no-'}{option}")
        else:
            words += [f"--{team}{dot}{option}", str(value)]
    return words


def grid(space: Sequence[Dimension]) -> list[dict[str, Any]]:
    """Every combination of the points."""
    points = [one.grid() for one in space]
    if math.prod(map(len, points)) > MOST:
        raise ShoalError(f"the grid has more than {MOST:,} points: vary less, or search at random")
    names = [one.name for one in space]
    return [dict(zip(names, each, strict=True)) for each in itertools.product(*points)]


def load_optuna() -> Any:
    """Optuna, quiet."""
    try:
        import optuna
    except ImportError:
        raise ShoalError(INSTALL) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def distributions(space: Sequence[Dimension]) -> dict[str, Any]:
    """The space as Optuna's distributions, by option."""
    kinds = load_optuna().distributions
    made: dict[str, Any] = {}
    for one in space:
        if one.values:
            made[one.name] = kinds.CategoricalDistribution(one.values)
        elif one.whole:
            made[one.name] = kinds.IntDistribution(int(one.low), int(one.high), log=one.log)
        else:
            made[one.name] = kinds.FloatDistribution(one.low, one.high, log=one.log)
    return made

"""Published tables: a TOML file for each, and the runs that reproduce it.

Ours are in this folder; a user's own is read from any path. A table says what each task is called
in Shoal and how a score becomes the published number: `a · score + b`, with `scale = [a, b]`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

from ... import files
from ...errors import ShoalError, did_you_mean
from ...options import fill
from .. import campaign
from ..campaign import Pair, Plan
from ..campaign_words import split
from ..trust import Trust

FOLDER = Path(__file__).parent
SUFFIX = ".toml"


@dataclass(frozen=True)
class Entry:
    """An algorithm of a table: the words after `shoal train`, and how it is trained and played."""

    train: str
    budget: str  # key of a task's `steps`
    actions: Literal["greedy", "sampled"] = "sampled"  # in the evaluations during training
    incomparable: str = ""  # why its published numbers say nothing about ours


@dataclass(frozen=True)
class Task:
    """A row of a table. Steps are by budget, published numbers by algorithm."""

    name: str
    steps: dict[str, int]
    published: dict[str, float]
    train: str = ""  # the environment and its options, as after `shoal train <algorithm>`
    missing: str = ""  # why it cannot be trained
    scale: list[float] = field(default_factory=lambda: [1.0, 0.0])
    unit: str = "return of one agent"  # what the published number is
    digits: int = 2  # digits after the point of the published numbers
    team: str = ""  # team that is scored; empty takes the first
    metric: str = ""  # metric of the environment that is the score; empty takes the return
    note: str = ""  # what a reader of the comparison must know
    incomparable: str = ""  # why our number says nothing about the published one

    def scaled(self, score: Any) -> Any:
        """Our score as the published number would have it."""
        return self.scale[0] * score + self.scale[1]


@dataclass(frozen=True)
class About:
    """Where a table is from, and how its numbers were made."""

    title: str
    source: str
    protocol: str  # in words
    evaluations: int = 41  # of a run: before the first step, after the last, and between
    episodes: int = 100  # of each evaluation
    # the published number: of the evaluation with the highest mean over seeds, or of the last
    score: Literal["best", "last"] = "last"
    final_episodes: int = 1000  # greedy episodes after training: our own protocol

    def __post_init__(self) -> None:
        if self.evaluations < 2 or self.episodes < 1 or self.final_episodes < 1:
            raise ShoalError(
                "evaluations must be at least 2, episodes and final_episodes at least 1"
            )


@dataclass(frozen=True)
class Table:
    """A published table."""

    name: str
    about: About
    algorithms: dict[str, Entry]
    tasks: list[Task]

    def steps(self, task: Task, algorithm: str, budget: float = 1.0) -> int:
        """Steps of a run with this share of the published budget."""
        return max(round(task.steps[self.algorithms[algorithm].budget] * budget), 1)

    def label(self, task: Task, algorithm: str, steps: int) -> str:
        """Name of a task in the campaign: runs that differ in it are not compared."""
        return f"{task.name}, {steps:,} steps, {self.algorithms[algorithm].actions}"

    def plan(
        self, tasks: str, algorithms: str, seeds: list[int], budget: float, trust: Trust
    ) -> Plan:
        """The campaign of all chosen pairs that have a published number."""
        pairs = []
        for task in self._chosen_tasks(tasks):
            for algorithm in self._chosen_algorithms(algorithms):
                if algorithm in task.published:
                    pairs.append(self._pair(task, algorithm, seeds, budget, trust))
        if not pairs:
            raise ShoalError(
                f"{self.name} has no number of {algorithms} on {tasks}: choose other"
                f" --algorithms or --tasks"
            )
        return Plan(pairs)

    def _pair(
        self, task: Task, algorithm: str, seeds: list[int], budget: float, trust: Trust
    ) -> Pair:
        steps = self.steps(task, algorithm, budget)
        made = campaign.made(
            {algorithm: split(self.algorithms[algorithm].train)},
            {self.label(task, algorithm, steps): split(task.train)},
            seeds,
            self._options(algorithm, steps),
            trust,
            trust,
        )
        (pair,) = campaign.checked(made, task.metric).pairs
        teams = pair.config["teams"]
        if task.team and task.team not in teams:
            raise ShoalError(
                f"{task.name} has no team {task.team!r}{did_you_mean(task.team, teams)}: it has"
                f" {', '.join(teams)}"
            )
        return pair

    def _options(self, algorithm: str, steps: int) -> list[str]:
        greedy = self.algorithms[algorithm].actions == "greedy"
        numbers = {
            "--steps": steps,
            "--evaluations": self.about.evaluations - 2,
            "--eval-episodes": self.about.episodes,
            "--final-episodes": self.about.final_episodes,
        }
        words = [str(word) for pair in numbers.items() for word in pair]
        return [*words, "--greedy" if greedy else "--no-greedy"]

    def _chosen_tasks(self, patterns: str) -> list[Task]:
        """Tasks by name or environment; one that cannot be trained is refused if it is named."""
        names = {task.name: (task.name, task.train) for task in self.tasks}
        chosen = _chosen(patterns, names, f"{self.name} has no task")
        found = [task for task in self.tasks if task.name in chosen]
        trained = [task for task in found if not task.missing]
        wild = "*" in patterns or not patterns
        for task in found:
            if task.missing and not (wild and trained):
                raise ShoalError(
                    f"{task.name} of {self.name} cannot be trained, as {task.missing}: choose"
                    f" other --tasks"
                )
        return trained

    def _chosen_algorithms(self, patterns: str) -> list[str]:
        names = {name: (name, entry.train) for name, entry in self.algorithms.items()}
        return _chosen(patterns, names, f"{self.name} has no algorithm")


def _chosen(patterns: str, names: dict[str, tuple[str, str]], nothing: str) -> list[str]:
    """Names that match any of the patterns, by themselves or by their first word in Shoal."""
    chosen = []
    for pattern in [word.strip() for word in patterns.split(",")] if patterns else ["*"]:
        found = [name for name, words in names.items() if _matches(pattern, words)]
        if not found:
            hint = did_you_mean(pattern, names)
            raise ShoalError(f"{nothing} {pattern!r}{hint}: it has {', '.join(names)}")
        chosen += found
    return [name for name in names if name in chosen]


def _matches(pattern: str, words: tuple[str, str]) -> bool:
    name, train = words
    known = [name, *train.split()[:1]]
    return any(fnmatchcase(word.lower(), pattern.lower()) for word in known)


# -- reading ---------------------------------------------------------------------------------------


def names() -> list[str]:
    """The tables that Shoal ships."""
    return sorted(path.stem for path in FOLDER.glob(f"*{SUFFIX}"))


def load(word: str) -> Table:
    """A shipped table by name, or a user's own by the path of its file."""
    if word.endswith(SUFFIX):
        return read(Path(word))
    if word not in names():
        raise ShoalError(
            f"there is no table {word!r}{did_you_mean(word, names())}: shoal reproduce --list"
            f" shows them, or give a {SUFFIX} file of your own"
        )
    return read(FOLDER / f"{word}{SUFFIX}")


def read(path: Path) -> Table:
    """Read a table and check it."""
    content = files.read_toml(path)
    with files.errors_name(path):
        tasks = content.pop("tasks", None)
        algorithms = content.pop("algorithms", None)
        if not isinstance(algorithms, dict) or not algorithms:
            raise ShoalError("it has no algorithms: name them below [algorithms]")
        if not isinstance(tasks, list) or not tasks:
            raise ShoalError("it has no tasks: begin each with [[tasks]]")
        entries = {
            name: _filled(Entry, one, f"algorithm {name!r}") for name, one in algorithms.items()
        }
        rows = [_filled(Task, one, f"task {place}") for place, one in enumerate(tasks, 1)]
        for row in rows:
            _check(row, entries)
        for name in (*entries, *(row.name for row in rows)):
            if not name or "," in name:
                raise ShoalError(f"{name!r} is no name: names have letters and no comma")
        if len({row.name for row in rows}) < len(rows):
            raise ShoalError("two tasks have the same name: rename one")
        return Table(path.stem, _filled(About, content, "a table"), entries, rows)


def _filled(cls: type, values: Any, owner: str) -> Any:
    """A dataclass from a TOML table, which must have every field without a default."""
    if not isinstance(values, dict):
        raise ShoalError(f"{owner} must be a table of names and values, not {values!r}")
    for option in dataclasses.fields(cls):
        needed = option.default is option.default_factory  # both missing
        if needed and option.name not in values:
            raise ShoalError(f"{owner} has no {option.name!r}: add it")
    return fill(cls, values, owner)


def _check(task: Task, entries: dict[str, Entry]) -> None:
    """Refuse a task whose parts do not fit each other."""
    if bool(task.train) == bool(task.missing):
        raise ShoalError(
            f"{task.name!r} must have either train, its environment, or missing, why it has none"
        )
    if len(task.scale) != 2 or not task.scale[0] > 0:
        raise ShoalError(
            f"scale of {task.name!r} must be [a, b] of a · score + b, with a greater than 0, not"
            f" {task.scale!r}"
        )
    if {"-h", "--help"} & {*split(task.train)}.union(
        *(split(one.train) for one in entries.values())
    ):
        raise ShoalError("train must name what to train: leave out --help")
    if not task.published:
        raise ShoalError(f"{task.name!r} has no published numbers: add [tasks.published]")
    for name in task.published:
        if name not in entries:
            raise ShoalError(
                f"{task.name!r} has a number of {name!r}{did_you_mean(name, entries)}:"
                f" [algorithms] has {', '.join(entries)}"
            )
        budget = entries[name].budget
        if task.steps.get(budget, 0) < 1:
            raise ShoalError(
                f"{task.name!r} has no steps of the budget {budget!r} of {name}: add it to"
                f" [tasks.steps]"
            )

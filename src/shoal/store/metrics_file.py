"""Names of metrics, and the reader of a run's logs: metrics.jsonl and episodes.csv."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .. import files
from ..engine.episodes import Episodes
from ..envs.metrics import split
from ..errors import ShoalError
from ..types import Spec
from . import folder

STEP = "env_step"
SECONDS = "seconds"
RATE = "steps_per_second"
EPISODE = "episode"  # prefix of an environment's own metrics
EVALUATION = "evaluation"  # prefix of metrics of an evaluation
SCORE = "score"  # prefix of final scores, sent to trackers
OURS = (EVALUATION, SCORE, EPISODE)  # prefixes that are not a team's
LENGTH = f"{EVALUATION}/length"  # only lines of evaluations have this metric
FILM = f"{EVALUATION}/film"
COLUMNS = (STEP, "episode", "team", "agent", "return", "length")  # columns of episodes.csv


def tag(name: str) -> str:
    """A team's or agent's name as part of a metric's name: without a slash, and never one of
    `OURS`."""
    plain = name.replace("%", "%25").replace("/", "%2F")
    return f"%{plain}" if plain in OURS else plain


def return_name(team: str, agent: str = "") -> str:
    """Name of the metric of a team's or an agent's return: `ally/return`, `ally/ally_0/return`."""
    return "/".join([tag(team), *([tag(agent)] if agent else []), "return"])


def episode_name(metric: str) -> str:
    """Name, and column, of an environment's own metric: `episode/won`, `episode/ally/won`."""
    team, word = split(metric)
    return "/".join([EPISODE, *([tag(team)] if team else []), word])


def evaluation_name(name: str) -> str:
    """Name of that metric in an evaluation."""
    return f"{EVALUATION}/{name}"


def score_name(team: str) -> str:
    """Name of the metric of a team's final score."""
    return f"{SCORE}/{tag(team)}"


def returns_in(
    line: Mapping[str, Any], teams: Iterable[str], evaluation: bool = False
) -> dict[str, Any]:
    """Mean returns by team in a line of training or of an evaluation, where present."""
    names = {team: return_name(team) for team in teams}
    if evaluation:
        names = {team: evaluation_name(name) for team, name in names.items()}
    return {team: line[name] for team, name in names.items() if name in line}


def metrics_in(
    line: Mapping[str, Any], teams: Iterable[str], evaluation: bool = False
) -> dict[str, Any]:
    """The environment's own metrics in a line of training or of an evaluation."""
    prefix = f"{evaluation_name(EPISODE) if evaluation else EPISODE}/"
    tags = {tag(team): team for team in teams}
    found = {}
    for name in line:
        team, word = split(name.removeprefix(prefix))
        if name.startswith(prefix) and (not team or team in tags):
            found[f"{tags[team]}/{word}" if team else word] = line[name]
    return found


class Lines(NamedTuple):
    """Lines of a metrics.jsonl."""

    values: list[dict[str, Any]]  # each line's values, by metric
    end: int  # offset in bytes of the first line not read

    @property
    def evaluations(self) -> list[dict[str, Any]]:
        return [line for line in self.values if LENGTH in line]


def read_lines(run: Path, start: int = 0, end: int | None = None) -> Lines:
    """Read a run's metrics.jsonl from byte `start` to `end`; leave out an incomplete last line."""
    path = run / folder.METRICS
    files.refuse_special(path)
    with path.open("rb") as file:
        file.seek(start)
        text = file.read() if end is None else file.read(max(end - start, 0))
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith((b"\n", b"}")):
        lines.pop()
    try:
        values = [json.loads(line) for line in lines if line.strip()]
        if not all(isinstance(line, dict) and type(line.get(STEP)) is int for line in values):
            raise ValueError
    except (ValueError, RecursionError):
        raise ShoalError(f"{path} has a line that is no log point: remove that line") from None
    return Lines(values, start + sum(map(len, lines)))


class CurvePoint(NamedTuple):
    """One evaluation, a point of the learning curve."""

    step: int
    seconds: float  # seconds of training until then
    played: Episodes


class History(NamedTuple):
    """A run's logs so far."""

    points: list[CurvePoint]  # evaluations
    training: list[tuple[int, dict[str, float]]]  # steps and mean return by team
    before: dict[str, float]  # scores of the first evaluation, bit for bit


def read(
    run: Path,
    teams: dict[str, Spec],
    metrics: Sequence[str] = (),
    marks: Mapping[str, int] | None = None,
) -> History:
    """Read the history from a run's files.

    `metrics` are the environment's own; `marks` limits the bytes read of each file."""
    lines = read_lines(run, end=None if marks is None else marks.get(folder.METRICS, 0))
    rows = _rows(run / folder.EPISODES, None if marks is None else marks.get(folder.EPISODES, 0))
    points = []
    for line in lines.evaluations:
        mine = [row for row in rows if int(row[STEP]) == line[STEP]]
        points.append(CurvePoint(line[STEP], line[SECONDS], _episodes(mine, teams, metrics)))
    before = {}
    for line in lines.evaluations[:1]:
        before = returns_in(line, teams, evaluation=True)
    training = [(line[STEP], returns_in(line, teams)) for line in lines.values]
    return History(points, [(step, returns) for step, returns in training if returns], before)


def _rows(path: Path, end: int | None) -> list[dict[str, str]]:
    text = path.read_bytes()[:end].decode()
    return list(csv.DictReader(io.StringIO(text, newline="")))


def _episodes(
    rows: list[dict[str, str]], teams: dict[str, Spec], metrics: Sequence[str]
) -> Episodes:
    returns = {}
    for team, spec in teams.items():
        mine = [float(row["return"]) for row in rows if row["team"] == team]
        returns[team] = np.array(mine).reshape(-1, spec.n)
    first = next((team, spec.agents[0]) for team, spec in teams.items())
    each = [row for row in rows if (row["team"], row["agent"]) == first]
    names = {metric: episode_name(metric) for metric in metrics}
    said = {
        metric: np.array([float(row[name]) for row in each])
        for metric, name in names.items()
        if all(name in row for row in each)
    }
    return Episodes(returns, np.array([int(row["length"]) for row in each]), said)

"""What a run has logged, read back from its folder."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..engine.episodes import Episodes
from ..envs.metrics import split
from ..types import Spec
from . import folder


class Point(NamedTuple):
    """One evaluation."""

    step: int
    seconds: float  # of training until then
    played: Episodes


EPISODE = "episode"  # what names of an environment's own metrics begin with
OURS = ("evaluation", "score", EPISODE)  # what names of metrics begin with that are not a team's


COLUMNS = ("env_step", "episode", "team", "agent", "return", "length")


def tag(name: str) -> str:
    """A team's or an agent's name inside a metric's: without a slash, and never one of our own
    first words."""
    plain = name.replace("%", "%25").replace("/", "%2F")
    return f"%{plain}" if plain in OURS else plain


def own(name: str) -> str:
    """Where an environment's own metric is told, as a column too: `episode/won`,
    `episode/ally/won`."""
    team, word = split(name)
    return "/".join([EPISODE, tag(team), word] if team else [EPISODE, word])


EVALUATED = f"evaluation/{EPISODE}/"


def own_of(line: dict[str, Any], teams: Iterable[str]) -> dict[str, Any]:
    """The environment's own metrics in a line of an evaluation, by name."""
    tags = {tag(team): team for team in teams}
    found = {}
    for key in line:
        team, word = split(key.removeprefix(EVALUATED))
        if key.startswith(EVALUATED) and (not team or team in tags):
            found[f"{tags[team]}/{word}" if team else word] = line[key]
    return found


class History(NamedTuple):
    """What a run has logged so far."""

    points: list[Point]  # its evaluations
    training: list[tuple[int, dict[str, float]]]  # step and mean return by team
    before: dict[str, float]  # the scores of the first evaluation, to the bit


def read(run: Path, teams: dict[str, Spec], metrics: Sequence[str] = ()) -> History:
    """From its files; `metrics` are the environment's own."""
    lines = [json.loads(line) for line in (run / folder.METRICS).read_text().splitlines()]
    returns = {team: f"{tag(team)}/return" for team in teams}
    training = [
        (line["env_step"], {team: line[name] for team, name in returns.items() if name in line})
        for line in lines
    ]
    with (run / folder.EPISODES).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    looks = [line for line in lines if "evaluation/length" in line]
    points = []
    for line in looks:
        mine = [row for row in rows if int(row["env_step"]) == line["env_step"]]
        points.append(Point(line["env_step"], line["seconds"], _episodes(mine, teams, metrics)))
    before = {
        team: line[f"evaluation/{name}"] for line in looks[:1] for team, name in returns.items()
    }
    return History(points, [(step, returns) for step, returns in training if returns], before)


def _episodes(
    rows: list[dict[str, str]], teams: dict[str, Spec], metrics: Sequence[str]
) -> Episodes:
    returns = {}
    for team, spec in teams.items():
        mine = [float(row["return"]) for row in rows if row["team"] == team]
        returns[team] = np.array(mine).reshape(-1, spec.n)
    first = next((team, spec.agents[0]) for team, spec in teams.items())
    each = [row for row in rows if (row["team"], row["agent"]) == first]
    columns = {name: own(name) for name in metrics if all(own(name) in row for row in each)}
    said = {
        name: np.array([float(row[column]) for row in each]) for name, column in columns.items()
    }
    return Episodes(returns, np.array([int(row["length"]) for row in each]), said)

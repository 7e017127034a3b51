"""Collects a run's metrics and passes them to its callbacks: files, console, trackers, the
user's."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine.episodes import Episodes
from ..engine.loop import EACH, Metrics
from ..envs.host.faults import Fault
from ..envs.metrics import refuse_nonsense
from ..errors import ShoalError
from ..store.metrics_file import (
    LENGTH,
    RATE,
    SECONDS,
    CurvePoint,
    History,
    episode_name,
    evaluation_name,
    return_name,
    tag,
)
from ..types import Spec
from .callbacks import Evaluated, Hooks, LiveRun


class Diverged(ShoalError):
    """A loss is NaN or infinite."""

    exit_code = 1
    reason = "diverged"


class RunMetrics:
    """Counts steps, and passes metrics, evaluations and faults to the callbacks."""

    def __init__(self, run: LiveRun, hooks: Hooks):
        self.run = run
        self.hooks = hooks
        self.teams: dict[str, Spec] = run.config.sides
        self.forwarded = {"training": 0, "evaluation": 0}  # number of faults passed on
        self.history = History([], [], {})

    def iteration(self, metrics: Metrics, spent: float, faults: dict[str, float]) -> int:
        """Pass on the metrics of one call of the training program; return the steps it made.

        `spent` are the seconds it took."""
        run = self.run
        fresh = int(metrics.steps[-1]) - run.steps
        run.steps = run.steps + fresh
        run.seconds = run.seconds + spent
        values = {
            f"{tag(team)}/{name}": x
            for team in self.teams
            for name, x in _means(metrics.learning[team]).items()
        }
        values |= faults
        episodes = float(metrics.episodes.sum())
        episode_metrics: dict[str, float] = {}
        if episodes:
            returns = {team: float(metrics.returns[team].sum()) / episodes for team in self.teams}
            each = {team: metrics.each[team].sum(0) / episodes for team in self.teams}
            values |= return_values(returns, each, self.teams)
            self.history.training.append((run.steps, returns))
            episode_metrics = {name: float(x.sum()) / episodes for name, x in metrics.own.items()}
        values |= {episode_name(name): value for name, value in episode_metrics.items()}
        values |= {SECONDS: run.seconds, RATE: fresh / spent}
        self.hooks.call("on_iteration", run, values)
        _refuse_nonsense(metrics.learning, run.steps)
        refuse_nonsense(episode_metrics, run.config.env)
        return fresh

    def evaluation(self, played: Episodes, best: bool) -> None:
        """Pass on an evaluation; `best` if it is the best so far."""
        run = self.run
        self.history.points.append(CurvePoint(run.steps, run.seconds, played))
        self.history.before.update(self.history.before or played.score())
        values = evaluation_values(played, self.teams) | {SECONDS: run.seconds}
        self.hooks.call("on_evaluation", run, Evaluated.of(played, values, best))

    def faults(self, during: str, faults: list[Fault]) -> None:
        """Pass on those of `faults` that are new; `faults` are all so far, `during` training or
        evaluation."""
        fresh = faults[self.forwarded[during] :]
        self.forwarded[during] = len(faults)
        if fresh:
            self.hooks.call("on_faults", self.run, fresh, during)


def evaluation_values(played: Episodes, teams: dict[str, Spec]) -> dict[str, float]:
    """Logged values of an evaluation, by metric."""
    each = {team: rows.mean(0) for team, rows in played.returns.items()}
    values = return_values(played.score(), each, teams)
    for team, rows in played.returns.items():
        values[f"{tag(team)}/deviation"] = float(rows.mean(1).std())
    values |= {episode_name(name): value for name, value in played.means().items()}
    values = {evaluation_name(name): value for name, value in values.items()}
    return values | {LENGTH: float(played.length.mean())}


def return_values(
    returns: dict[str, float], each: dict[str, Any], teams: dict[str, Spec]
) -> dict[str, float]:
    """Returns by metric: every team's, and every agent's in teams of several, but not too many,
    agents."""
    values = {return_name(team): value for team, value in returns.items()}
    for team, spec in teams.items():
        if 1 < spec.n <= EACH:
            rows = zip(spec.agents, each[team], strict=True)
            values |= {return_name(team, agent): float(x) for agent, x in rows}
    return values


def _means(metrics: dict[str, Any]) -> dict[str, float]:
    """Mean over a call's iterations, weighted by `updates` where reported."""
    updates = metrics.get("updates")
    if updates is None:
        return {name: float(series.mean()) for name, series in metrics.items()}
    if not updates.any():
        return {"updates": 0.0}
    means = {
        name: float((series * updates).sum() / updates.sum()) for name, series in metrics.items()
    }
    return means | {"updates": float(updates.sum())}


def _refuse_nonsense(learning: dict[str, dict[str, Any]], step: int) -> None:
    """Refuse metrics that are not finite; name those of the first iteration that has any."""
    bad = {
        f"{tag(team)}/{name}": ~np.isfinite(series).reshape(len(series), -1).all(1)
        for team, metrics in learning.items()
        for name, series in metrics.items()
    }
    first = min((int(rows.argmax()) for rows in bad.values() if rows.any()), default=None)
    if first is not None:
        wrong = ", ".join(name for name, rows in bad.items() if rows[first])
        raise Diverged(f"training diverged: {wrong} stopped being a number before step {step}")

"""What a run tells as it goes on, to its files, to the console and to callbacks, and what its end
is told by."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..engine.episodes import Episodes
from ..engine.loop import EACH, Metrics
from ..envs.host.faults import Fault
from ..envs.metrics import refuse_nonsense
from ..errors import ShoalError
from ..store import metrics_file
from ..store.metrics_file import History, own, tag
from ..types import Spec
from .callbacks import Hooks, Run
from .console import Console, named

BROKE = {
    "training": "an episode broke and was dropped",
    "evaluation": "an episode of the evaluation broke and was played again",
}


class Diverged(ShoalError):
    """A loss is no longer a number."""

    exit_code = 1
    reason = "diverged"


class RunMetrics:
    """Keeps the count of steps, and tells what happens at each."""

    def __init__(self, run: Run, display: Console, hooks: Hooks):
        self.run = run
        self.display = display
        self.hooks = hooks
        self.teams: dict[str, Spec] = run.config.sides
        self.told = dict.fromkeys(BROKE, 0)
        self.history = History([], [], {})

    def metrics(self, metrics: Metrics, spent: float, faults: dict[str, float]) -> int:
        """What a call of the training program gave and the seconds it took; the steps it made."""
        run = self.run
        fresh = int(metrics.steps[-1]) - run.steps
        run.steps = run.steps + fresh
        run.seconds = run.seconds + spent
        learning = {
            f"{tag(team)}/{name}": x
            for team in self.teams
            for name, x in _means(metrics.learning[team]).items()
        }
        episodes = float(metrics.episodes.sum())
        returns = (
            {team: float(metrics.returns[team].sum()) / episodes for team in self.teams}
            if episodes
            else {}
        )
        values = learning | faults
        if episodes:
            values |= told(
                returns,
                {team: metrics.each[team].sum(0) / episodes for team in self.teams},
                self.teams,
            )
            self.history.training.append((run.steps, returns))
        said = {name: float(x.sum()) / episodes for name, x in metrics.own.items() if episodes}
        values |= {own(name): value for name, value in said.items()}
        rate = fresh / spent
        values |= {"seconds": run.seconds, "steps_per_second": rate}
        run.log.point(run.steps, values)
        _refuse_nonsense(metrics.learning, run.steps)
        refuse_nonsense(said, run.config.env)
        self.display.progress(run.steps, run.config.settings.steps, rate, returns, said)
        self.hooks.call("on_iteration", run, values)
        return fresh

    def evaluation(self, played: Episodes, best: bool) -> None:
        """An evaluation, and whether it was the best so far."""
        run = self.run
        s = self.run.config.settings
        self.history.points.append(metrics_file.Point(run.steps, run.seconds, played))
        self.history.before.update(self.history.before or played.score())
        run.log.evaluation(run.steps, self.teams, played)
        run.log.point(run.steps, evaluated(played, self.teams) | {"seconds": run.seconds})
        count = f"{len(played.length)} {'greedy' if s.greedy else 'sampled'} episodes"
        said = f", {named(played.means())}" if played.metrics else ""
        so_far = ", the best so far" if best and run.steps else ""
        self.display.say(
            f"evaluation at {run.steps:,} steps: {named(played.score())} (mean"
            f" return, {count}){said}{so_far}"
        )
        if not run.steps:
            for team in opposed(played):
                self.display.say(
                    f"the agents of team {team} earn what others of it lose, so that its score"
                    f" is always 0: they should"
                    " play against each other, in teams of their own (of an environment on the"
                    " host: --env.teams each)"
                )
        self.hooks.call("on_evaluation", run, played)

    def faults(self, where: str, faults: list[Fault]) -> None:
        """Show the newest of those that were not told yet, and write all of them down."""
        fresh = faults[self.told[where] :]
        self.told[where] = len(faults)
        for fault in fresh:
            self.run.log.fault(fault)
        if fresh:
            more = f" (and {len(fresh) - 1} more)" if len(fresh) > 1 else ""
            self.display.say(f"{BROKE[where]}{more}: {fresh[-1]}")


def evaluated(played: Episodes, teams: dict[str, Spec]) -> dict[str, float]:
    """An evaluation as it is logged."""
    each = {team: rows.mean(0) for team, rows in played.returns.items()}
    values = {
        f"evaluation/{name}": value for name, value in told(played.score(), each, teams).items()
    }
    for team, rows in played.returns.items():
        values[f"evaluation/{tag(team)}/deviation"] = float(rows.mean(1).std())
    values |= {f"evaluation/{own(name)}": value for name, value in played.means().items()}
    return values | {"evaluation/length": float(played.length.mean())}


def opposed(played: Episodes) -> list[str]:
    """Teams whose agents' returns cancel out in every episode."""
    return [
        team
        for team, rows in played.returns.items()
        if rows.any() and np.allclose(rows.sum(1), 0.0, atol=1e-6)
    ]


def told(
    returns: dict[str, float], each: dict[str, Any], teams: dict[str, Spec]
) -> dict[str, float]:
    """Returns by name: every team's, and its agents' if there are several but not too many."""
    values = {f"{tag(team)}/return": value for team, value in returns.items()}
    for team, spec in teams.items():
        if 1 < spec.n <= EACH:
            rows = zip(spec.agents, each[team], strict=True)
            values |= {f"{tag(team)}/{tag(agent)}/return": float(x) for agent, x in rows}
    return values


def _means(metrics: dict[str, Any]) -> dict[str, float]:
    """Over the iterations of a call; of an algorithm that says how many `updates` each made, over
    those."""
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
    """Name what was no number in the first iteration in which anything was none."""
    bad = {
        f"{tag(team)}/{name}": ~np.isfinite(series).reshape(len(series), -1).all(1)
        for team, metrics in learning.items()
        for name, series in metrics.items()
    }
    first = min((int(rows.argmax()) for rows in bad.values() if rows.any()), default=None)
    if first is not None:
        wrong = ", ".join(name for name, rows in bad.items() if rows[first])
        raise Diverged(f"training diverged: {wrong} stopped being a number before step {step}")

"""`shoal evaluate`: play a finished run's policy again, or all policies of a group or a
campaign."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..config import campaign
from ..config.arguments import evaluation
from ..config.trust import FLAG, Trust
from ..engine.episodes import outcomes
from ..errors import ShoalError
from ..store.player import Player, load
from ..sweep import seeds
from .words import Trusting, first


@dataclass(frozen=True)
class Evaluation:
    """How to play a finished run's policy again."""

    episodes: int = 100
    """Episodes to play."""
    sampled: bool = False
    """Sample actions instead of taking the most likely ones."""
    best: bool = False
    """The policy that was evaluated best instead of the last one."""
    seed: int = 0
    """Decides the games that are played."""
    json: bool = False
    """Print one JSON object instead of text."""

    def __post_init__(self) -> None:
        if self.episodes < 1 or not 0 <= self.seed < 2**32:
            raise ShoalError("episodes must be at least 1 and seed between 0 and 2**32")

    @property
    def actions(self) -> str:
        return "sampled" if self.sampled else "greedy"

    @property
    def facts(self) -> dict[str, Any]:
        return {"episodes": self.episodes, "actions": self.actions, "seed": self.seed}


Others = dict[str, tuple[str, dict]]  # team -> its substitute


class Member(NamedTuple):
    """A run of a group or of a campaign."""

    path: Path
    algorithm: str
    env: str


class Played(NamedTuple):
    """Results of a run's policy."""

    player: Player
    teams: dict[str, dict[str, float]]
    length: float  # mean length of an episode
    metrics: dict[str, float]  # means of the environment's own metrics
    spread: dict[str, float]  # their deviations between episodes


def evaluate(args: list[str], trust: Trusting) -> int:
    """Play a run's policy again and print how it did."""
    title = (
        "Play a finished run's policy again: shoal evaluate runs/my-run --episodes 1000"
        " --sampled. Of a folder of several seeds, or of a campaign, every run's is played, and a"
        " table printed. Another may take a"
        " team's place: --team <team>=random, --team <team>=frozen:runs/other; then"
        " --<team>.<option> sets it."
        f" An environment of somebody's own, which the run names, is only played with {FLAG}"
    )
    run, args = first(args, "say which run to evaluate: shoal evaluate <run>")
    options, others = evaluation(Evaluation(), args, "shoal evaluate <run>", title)
    inside = members(Path(run))
    if inside is not None:
        return _all(run, inside, options, others, trust.files)
    played = _played(_loaded(Path(run), options, others, trust.files), options)
    instead = {team: name for team, (name, _) in others.items()}
    if options.json:
        facts = {"run": run} | options.facts | {"teams": played.teams}
        facts |= {"instead": instead} if instead else {}
        facts |= {"metrics": played.metrics} if played.metrics else {}
        print(json.dumps(facts | {"length": played.length}))
        return 0
    config = played.player.config
    print(
        f"{config.label} on {config.env} after {played.player.steps:,} steps,"
        f" {options.episodes} {options.actions} episodes"
    )
    for team, score in played.teams.items():
        print(_sentence(team, score, instead.get(team, "")))
    for name, value in played.metrics.items():
        print(f"{name}: {value:.2f} ± {played.spread[name]:.2f} between episodes")
    return 0


def _loaded(run: Path, options: Evaluation, others: Others, trust: Trust) -> Player:
    return load(run, best=options.best, trust=trust.everything).against(others)


def _played(player: Player, options: Evaluation) -> Played:
    played = player.evaluate(options.episodes, not options.sampled, options.seed)
    teams = {
        team: {"return": float(rows.mean()), "deviation": float(rows.mean(1).std())}
        for team, rows in played.returns.items()
    }
    for team, shares in outcomes(played).items():
        teams[team] |= shares
    spread = {name: float(values.std()) for name, values in played.metrics.items()}
    return Played(player, teams, float(played.length.mean()), played.means(), spread)


def _sentence(team: str, score: dict[str, float], instead: str) -> str:
    who = f" ({instead})" if instead else ""
    won = (
        f", won {score['win']:.1%}, drew {score['draw']:.1%}, lost {score['loss']:.1%}"
        if "win" in score
        else ""
    )
    told = f"return of one agent {score['return']:.2f} ± {score['deviation']:.2f} between episodes"
    return f"team {team}{who}: {told}{won}"


# -- several runs ----------------------------------------------------------------------------------


def members(folder: Path) -> list[Member] | None:
    """The runs of a group or a campaign; None for any other folder."""
    if (folder / campaign.FILE).exists():
        pairs = campaign.read(folder).pairs
        return [
            Member(pair.path(folder, seed), pair.algorithm, pair.env)
            for pair in pairs
            for seed in pair.seeds
        ]
    if seeds.is_group(folder):
        content = seeds.read(folder)
        return [Member(path, "", "") for path in seeds.members(folder, content)]
    return None


def _all(
    folder: str, members: Sequence[Member], options: Evaluation, others: Others, trust: Trust
) -> int:
    """Evaluate every run's policy on the same games; return 1 if some runs have none."""
    done: list[tuple[Member, Played]] = []
    left: list[tuple[Path, str]] = []
    for member in members:
        try:
            player = _loaded(member.path, options, others, trust)
        except ShoalError as error:
            left.append((member.path, str(error)))
            continue
        done.append((_named(member, player), _played(player, options)))
    if not done:
        raise ShoalError(f"no run of {folder} can be evaluated: {left[0][1] if left else 'none'}")
    over = _over_runs(done)
    if options.json:
        print(json.dumps(_as_json(folder, done, over, left, others) | options.facts))
    else:
        print(
            f"{len(done)} runs of {folder}, {options.episodes} {options.actions} episodes of each"
        )
        _print_table(done, over)
        for path, why in left:
            print(f"{path} is left out: {why}")
    return 1 if left else 0


def _named(member: Member, player: Player) -> Member:
    """Name a run of a group by its algorithm and environment."""
    if member.algorithm:
        return member
    return member._replace(algorithm=player.config.label, env=player.config.env)


class Over(NamedTuple):
    """Scores of the runs of one algorithm on one environment."""

    algorithm: str
    env: str
    returns: dict[str, list[float]]  # by team, one per run
    metrics: dict[str, list[float]]  # by metric of the environment, one per run


def _statistics(values: list[float]) -> dict[str, float | None]:
    """Mean and deviation between runs."""
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return {"mean": float(np.mean(values)), "deviation": spread}


def _over_runs(done: list[tuple[Member, Played]]) -> list[Over]:
    over: dict[tuple[str, str], Over] = {}
    for member, played in done:
        key = (member.algorithm, member.env)
        mine = over.setdefault(key, Over(*key, {}, {}))
        for team, score in played.teams.items():
            mine.returns.setdefault(team, []).append(score["return"])
        for name, value in played.metrics.items():
            mine.metrics.setdefault(name, []).append(value)
    return list(over.values())


def _as_json(
    folder: str,
    done: list[tuple[Member, Played]],
    over: list[Over],
    left: list[tuple[Path, str]],
    others: Others,
) -> dict[str, Any]:
    runs = [
        {
            "run": str(member.path),
            "algorithm": member.algorithm,
            "env": member.env,
            "teams": played.teams,
            "length": played.length,
        }
        | ({"metrics": played.metrics} if played.metrics else {})
        for member, played in done
    ]
    means = [
        {
            "algorithm": one.algorithm,
            "env": one.env,
            "runs": len(next(iter(one.returns.values()))),
            "teams": {team: _statistics(scores) for team, scores in one.returns.items()},
        }
        | (
            {"metrics": {name: _statistics(values) for name, values in one.metrics.items()}}
            if one.metrics
            else {}
        )
        for one in over
    ]
    facts = {"folder": folder, "runs": runs, "means": means}
    facts |= {"left": [{"run": str(path), "why": why} for path, why in left]} if left else {}
    return facts | (
        {"instead": {team: name for team, (name, _) in others.items()}} if others else {}
    )


def _print_table(done: list[tuple[Member, Played]], over: list[Over]) -> None:
    from rich.console import Console
    from rich.table import Table

    measured = any(one.metrics for one in over)
    what = "return of one agent, or metric," if measured else "return of one agent"
    table = Table("run", "team", f"{what} ± deviation", box=None, pad_edge=False)
    table.columns[2].justify = "right"
    for member, played in done:
        for team, score in played.teams.items():
            told = f"{score['return']:.2f} ± {score['deviation']:.2f} between episodes"
            table.add_row(member.path.name, team, told)
        for name, value in played.metrics.items():
            told = f"{value:.2f} ± {played.spread[name]:.2f} between episodes"
            table.add_row(member.path.name, name, told)
    for one in over:
        for team, values in (*one.returns.items(), *one.metrics.items()):
            told = _statistics(values)
            spread = "" if told["deviation"] is None else f" ± {told['deviation']:.2f}"
            between = f" between {len(values)} runs" if spread else ""
            name = f"{one.algorithm} on {one.env}"
            table.add_row(name, team, f"{told['mean']:.2f}{spread}{between}", style="bold")
    Console(markup=False).print(table, highlight=False)

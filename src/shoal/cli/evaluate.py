"""`shoal evaluate`: a finished run's policy, played again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from ..config.compose import evaluation
from ..config.trust import FLAG
from ..errors import ShoalError
from ..store.player import load, outcomes
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


def evaluate(args: list[str], trust: Trusting) -> int:
    """Play a run's policy again and print how it did."""
    title = (
        "Play a finished run's policy again: shoal evaluate runs/my-run --episodes 1000"
        " --sampled. Another may take a"
        " team's place: --team <team>=random, --team <team>=frozen:runs/other; then"
        " --<team>.<option> sets it."
        f" An environment of somebody's own, which the run names, is only played with {FLAG}"
    )
    run, args = first(args, "say which run to evaluate: shoal evaluate <run>")
    how, others = evaluation(Evaluation(), args, "shoal evaluate <run>", title)
    player = load(Path(run), best=how.best, trust=trust.files.everything).against(others)
    played = player.evaluate(how.episodes, not how.sampled, how.seed)
    teams = {
        team: {"return": float(rows.mean()), "deviation": float(rows.mean(1).std())}
        for team, rows in played.returns.items()
    }
    for team, shares in outcomes(played).items():
        teams[team] |= shares
    actions = "sampled" if how.sampled else "greedy"
    instead = {team: name for team, (name, _) in others.items()}
    if how.json:
        facts = {
            "run": run,
            "episodes": how.episodes,
            "actions": actions,
            "seed": how.seed,
            "teams": teams,
        }
        facts |= {"instead": instead} if instead else {}
        facts |= {"metrics": played.means()} if played.metrics else {}
        print(json.dumps(facts | {"length": float(played.length.mean())}))
        return 0
    print(
        f"{player.config.label} on {player.config.env} after {player.steps:,} steps,"
        f" {how.episodes} {actions} episodes"
    )
    for team, score in teams.items():
        who = f" ({instead[team]})" if team in instead else ""
        won = (
            f", won {score['win']:.1%}, drew {score['draw']:.1%}, lost {score['loss']:.1%}"
            if "win" in score
            else ""
        )
        told = (
            f"return of one agent {score['return']:.2f} ± {score['deviation']:.2f} between episodes"
        )
        print(f"team {team}{who}: {told}{won}")
    for name, values in played.metrics.items():
        print(f"{name}: {values.mean():.2f} ± {values.std():.2f} between episodes")
    return 0

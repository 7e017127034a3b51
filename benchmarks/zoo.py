"""The zoo: train, score and save the policies that Shoal ships.

    python benchmarks/zoo.py                 # everything: about half an hour on one core
    python benchmarks/zoo.py spread tag      # some of the runs

A run is its `shoal train` command with `--seed 0 --devices 1 --workers 0`. Its policies are scored
by 1,000 greedy episodes on games of their own: all teams as they were trained, each learner alone
against random play, and random play throughout; a return is one agent's mean. A team whose mean is
not above that of random play by five standard errors is not shipped. What is, goes to
`src/shoal/zoo/policies`, with its scores; the seconds of training are in the run's summary.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import shoal
from shoal.engine.episodes import Episodes, outcomes
from shoal.files import write_json
from shoal.store.player import Player
from shoal.zoo import ABOUT, FOLDER

EPISODES = 1_000
GAMES_SEED = 12345  # of the episodes that are scored
CLEARLY = 5  # standard errors above random play
LICENCE = "Apache-2.0"
FIXED = "--seed 0 --devices 1 --workers 0"


class Run(NamedTuple):
    """A run, and which policies of it are shipped."""

    command: str  # after `shoal train`
    about: str
    parts: dict[str, str] = {}  # further policies: name -> its only team
    whole: bool = True  # whether all teams of it are shipped, under the run's name


REFERENCE = (
    "--steps 2e6 --games 32 --lr 1e-3 --gamma 0.95 --epochs 5 --minibatches 2 --entropy 0.05"
)
RUNS = {
    "climbing": Run("dqn matrix/climbing --hidden 32", "the climbing game, solved"),
    "penalty": Run("dqn matrix/penalty --env.k -100 --hidden 32", "the penalty game, k = -100"),
    "nonmonotonic": Run("qtran matrix/nonmonotonic", "the game that VDN and QMIX cannot represent"),
    "spread": Run("maa2c mpe/simple_spread", "three agents cover three landmarks"),
    "speaker-listener": Run(
        "mappo mpe/simple_speaker_listener", "one sees the goal, the other moves"
    ),
    "tag": Run(
        "--team adversary=maddpg --team agent=maddpg mpe/simple_tag --steps 4e5",
        "three predators chase a faster prey, trained against each other",
        {"tag-predators": "adversary", "tag-prey": "agent"},
    ),
    "adversary": Run("mappo mpe/simple_adversary", "two agents hide their goal from an adversary"),
    "lbf": Run(
        "ppo lbf/8x8-2p-2f-coop --steps 3e6 --lr 1e-3 --games 64 --epochs 2 --minibatches 2",
        "two foragers who must gather together",
    ),
    "spread-gru": Run(
        "mappo mpe/simple_spread --torso gru --hidden 48 --steps 1.5e6 --gamma 0.95 --epochs 4"
        " --minibatches 4 --entropy-decay 1.0 --entities game",
        "three agents cover three landmarks, with a memory",
    ),
    "reference": Run(f"mappo mpe/simple_reference {REFERENCE}", "each tells the other its goal"),
    "spread-continuous": Run(
        "maddpg mpe/simple_spread --env.continuous-actions --steps 2e6",
        "three agents cover three landmarks, with real actions",
    ),
    "connect-four": Run(
        "ppo pz:pettingzoo.classic.connect_four_v3 --self-play --env.teams each --env.swap"
        " --player_1.every 5 --player_1.period 5 --player_0.hidden 64",
        "connect four by self-play, in either seat",
        {"connect-four": "player_0"},
        whole=False,
    ),
    "rware": Run(
        "ppo rware/tiny-2ag --steps 12e6 --lr 1e-3 --games 64 --epochs 2 --minibatches 2"
        " --entropy 0.005",
        "two robots of a small warehouse",
    ),
}


class Scores(NamedTuple):
    """A match, in numbers."""

    teams: dict[str, dict[str, float]]  # by team, then by number
    metrics: dict[str, float]
    returns: dict[str, np.ndarray]  # by team, of each episode


def main(names: list[str]) -> int:
    """Train what is named, or all; return how many policies were not good enough."""
    unknown = [name for name in names if name not in RUNS]
    if unknown:
        raise SystemExit(f"no run {unknown[0]!r}: there are {', '.join(RUNS)}")
    return sum(_make(name, RUNS[name]) for name in names or RUNS)


def _make(name: str, run: Run) -> int:
    command = f"{run.command} {FIXED}"
    with tempfile.TemporaryDirectory() as place:
        words = ["train", *shlex.split(command), "--out", "runs", "--name", name]
        subprocess.run([sys.executable, "-m", "shoal", *words], cwd=place, check=True)
        path = Path(place) / "runs" / name
        player = shoal.load(path)
        seconds = json.loads((path / "summary.json").read_text())["seconds"]
    learners = [team for team, one in player.algorithms.items() if one.needs_training]
    scores = {
        label: _scores(player.against(others)) for label, others in _matches(player, learners)
    }
    worse = [team for team in learners if not _beats(team, scores, len(player.teams))]
    teams = {label: one.teams for label, one in scores.items()}
    print(f"{name}: {teams}, {seconds:.0f} s", flush=True)
    if worse:
        print(f"{name} is not shipped: {', '.join(worse)} is not clearly above random play")
        return 1
    about = {
        "about": run.about,
        "env": player.config.env,
        "command": f"shoal train {command}",
        "algorithms": {team: player.algorithms[team].name for team in learners},
        "steps": player.steps,
        "episodes": EPISODES,
        "scores": teams,
        "metrics": {label: one.metrics for label, one in scores.items() if one.metrics},
        "licence": LICENCE,
    }
    shipped = ({name: ""} if run.whole else {}) | run.parts
    for part, team in shipped.items():
        place = (player.team(team) if team else player).save(FOLDER / part)
        write_json(place / ABOUT, about | ({"team": team} if team else {}))
    return 0


def _matches(player: Player, learners: list[str]) -> list[tuple[str, dict[str, str]]]:
    """Who meets whom: label, and who takes which team's place."""
    alone = [
        (f"{team} against random", {other: "random" for other in player.teams if other != team})
        for team in learners
        if len(player.teams) > 1
    ]
    trained = [("as trained", {})] if len(learners) == len(player.teams) else []
    return [*trained, *alone, ("random", dict.fromkeys(player.teams, "random"))]


def _scores(player: Player) -> Scores:
    played = player.evaluate(EPISODES, seed=GAMES_SEED)
    shares = outcomes(played)
    teams = {
        team: {"return": float(rows.mean())} | shares.get(team, {})
        for team, rows in played.returns.items()
    }
    return Scores(_rounded(teams), _rounded(played.means()), _each(played))


def _each(played: Episodes) -> dict[str, np.ndarray]:
    return {team: rows.mean(1) for team, rows in played.returns.items()}


def _rounded(numbers: Any) -> Any:
    if isinstance(numbers, dict):
        return {name: _rounded(value) for name, value in numbers.items()}
    return round(numbers, 3)


def _beats(team: str, scores: dict[str, Scores], teams: int) -> bool:
    mine = scores[f"{team} against random" if teams > 1 else "as trained"].returns[team]
    chance = scores["random"].returns[team]
    error = float(np.hypot(mine.std(), chance.std())) / EPISODES**0.5
    return float(mine.mean() - chance.mean()) > CLEARLY * error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Games of several sides: what a side has learnt, against the others and against random play.

    python benchmarks/sides.py                # everything, three seeds
    python benchmarks/sides.py connect_four   # one task
    python benchmarks/sides.py --again battle

A run is the task's `shoal train` command with `--seed <seed> --devices 1 --workers 0`, in a process
of its own. Before its first step and after its last, whole greedy episodes are played on games of
their own, with the teams named replaced. Who earned more in an episode has won it: the mean return
of a side's agents. In battle, the agents of each side that are left at the end of an episode are
counted too. Seconds are of training alone, after compilation. Runs already in
`benchmarks/results/sides.json` are not repeated unless `--again` is given.
"""

from __future__ import annotations

import json
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).parent / "results" / "sides.json"
SEEDS = 3
GAMES_SEED = 12345  # of the episodes that are scored
COUNTED = 10  # episodes of battle in which those left are counted


class Task(NamedTuple):
    """What is trained, and who then meets whom."""

    command: str  # after `shoal train`
    matches: dict[str, dict[str, str]]  # label -> who takes which team's place
    episodes: int
    side: str  # whose wins are told
    counts: bool = False  # whether agents can die, and are counted


BATTLE = "pz:magent2.environments.battle_v4"
TASKS = {
    "connect_four": Task(
        "ppo pz:pettingzoo.classic.connect_four_v3 --self-play --env.teams each --env.swap"
        " --player_1.every 5 --player_1.period 5",
        {"learner against random": {"player_1": "random"}},
        400,
        "player_0",
    ),
    "battle": Task(
        f"--team red=mfq --team blue=random {BATTLE}",
        {"red against random": {}},
        50,
        "red",
        counts=True,
    ),
    "simple_adversary": Task(
        "--team adversary=maddpg --team agent=mappo mpe/simple_adversary",
        {
            "adversary against agents": {},
            "adversary against random": {"agent": "random"},
            "random against agents": {"adversary": "random"},
        },
        1_000,
        "adversary",
    ),
}


def child(name: str, seed: int) -> dict[str, Any]:
    """One run, scored before and after."""
    import numpy as np

    from shoal.config.arguments import compose_arguments
    from shoal.devices import setup
    from shoal.run.trainer import train
    from shoal.store.player import Player, load

    setup()
    task = TASKS[name]
    with tempfile.TemporaryDirectory() as out:
        common = (
            f"--seed {seed} --devices 1 --workers 0 --evaluations 0 --eval-episodes 16 --out {out}"
        )
        config, _ = compose_arguments(shlex.split(f"{task.command} {common}"))
        rng = np.random.default_rng(seed)
        untrained = Player(
            config, {team: each.init(rng) for team, each in config.algorithms.items()}, 0
        )
        before = scores(untrained, task)
        result = train(config, quiet=True)
        after = scores(load(result.path), task)
    return {"steps": result.steps, "seconds": result.seconds, "before": before, "after": after}


def scores(player: Any, task: Task) -> dict[str, dict[str, dict[str, float]]]:
    """match -> team -> its mean return and its shares of episodes won, drawn and lost."""
    from shoal.engine.episodes import outcomes

    told = {}
    for label, others in task.matches.items():
        played = player.against(others).evaluate(task.episodes, True, GAMES_SEED)
        shares = outcomes(played)
        returns = played.score()
        told[label] = {team: {"return": returns[team], **shares[team]} for team in returns}
        if task.counts:
            left = survivors(player)
            for team, other in zip(left, reversed(left), strict=True):
                more = statistics.mean(a > b for a, b in zip(left[team], left[other], strict=True))
                told[label][team] |= {"left": statistics.mean(left[team]), "more_left": more}
    return told


def survivors(player: Any) -> dict[str, list[int]]:
    """team -> how many of its agents were left at the end of each of some episodes."""
    from magent2.environments import battle_v4

    from shoal.envs.adapters import AdapterOptions

    env = battle_v4.parallel_env(**AdapterOptions.split(player.config.options)[1])
    left: dict[str, list[int]] = {"red": [], "blue": []}
    for episode in range(COUNTED):
        seen, _ = env.reset(seed=GAMES_SEED + episode)
        player.reset()
        while env.agents:
            seen, *_ = env.step(player.act({agent: seen[agent] for agent in env.agents}))
        world: Any = env.unwrapped
        for team, handle in zip(left, world.handles, strict=True):
            left[team].append(world.env.get_num(handle))
    return left


def table(rows: list[dict]) -> str:
    """Markdown, a line per match."""
    lines = [
        "| task | match | return before | return after (each seed) | won | steps | seconds |",
        "|" + "---|" * 7,
    ]
    for name, task in TASKS.items():
        mine = [row for row in rows if row["task"] == name]
        for label in task.matches if mine else ():
            teams = list(mine[0]["after"][label])
            then, now = (
                {t: [row[when][label][t] for row in mine] for t in teams}
                for when in ("before", "after")
            )
            cells = [
                name,
                label,
                "; ".join(
                    f"{t} {statistics.mean(s['return'] for s in then[t]):.2f}" for t in teams
                ),
                "; ".join(
                    f"{t} **{statistics.mean(s['return'] for s in now[t]):.2f}** ({_each(now[t])})"
                    for t in teams
                ),
                f"{task.side} {_shares(then[task.side])} → **{_shares(now[task.side])}**",
                f"{mine[0]['steps'] / 1e3:.0f}k",
                f"{statistics.mean(row['seconds'] for row in mine):.0f}",
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _each(scores: list[dict]) -> str:
    return ", ".join(f"{score['return']:.2f}" for score in scores)


def _shares(scores: list[dict]) -> str:
    return ", ".join(f"{score['win']:.1%}" for score in scores)


def main(words: list[str]) -> None:
    again = "--again" in words
    chosen = [word for word in words if word != "--again"] or list(TASKS)
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    rows = [row for row in rows if not (again and row["task"] in chosen)]
    known = {(row["task"], row["seed"]) for row in rows}
    RESULTS.parent.mkdir(exist_ok=True)
    for name, seed in [(name, seed) for name in chosen for seed in range(SEEDS)]:
        if (name, seed) in known:
            continue
        command = [sys.executable, __file__, "--child", name, str(seed)]
        out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        rows.append(
            {"task": name, "seed": seed, "command": TASKS[name].command}
            | json.loads(out.splitlines()[-1])
        )
        print(name, seed, json.dumps(rows[-1]["after"]), f"{rows[-1]['seconds']:.0f} s", flush=True)
        rows.sort(key=lambda row: (list(TASKS).index(row["task"]), row["seed"]))
        RESULTS.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    print("\n" + table(rows))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(sys.argv[2], int(sys.argv[3]))))
    else:
        main(sys.argv[1:])

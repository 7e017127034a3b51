"""Agents that learn in turn or through a mixer, beside the nearest member without it.

    python benchmarks/learning_in_turn.py                 # all that is not yet recorded
    python benchmarks/learning_in_turn.py haa2c maa2c     # these alone

On `mpe/simple_spread` every agent has an actor of its own and reads things alike nearest first. On
`mpe/simple_tag` (`…-tag`) three predators hunt a prey that plays at random. On
`mpe/simple_speaker_listener` (`…-listener`) two agents of different kinds earn the same. Three
seeds, one core.
A run and its neighbour have equal settings and budgets; learning rates fall to 0 at the end of
each. A score is the mean return of one agent, or of one predator, over 1,000 greedy episodes, the
same for all. Seconds are of processor time, compilation included unless it was cached. Runs in
`benchmarks/results/learning_in_turn.json` are not repeated.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from records import add_row, read_rows, whole

import shoal

RESULTS = Path(__file__).parent / "results" / "learning_in_turn.json"
SPREAD = "mpe/simple_spread"
TAG = "mpe/simple_tag"
LISTENER = "mpe/simple_speaker_listener"
SEEDS = 3
EPISODES = 1_000
SHOWN: dict[str, Any] = {"evaluations": 0, "eval_episodes": 50, "devices": 1, "quiet": True}
RUN: dict[str, Any] = {"steps": 1_000_000, "games": 32}
ON: dict[str, Any] = {
    "sharing": "own",
    "entities": "game",
    "lr": 2e-3,
    "gamma": 0.95,
    "minibatches": 2,
}
PASSES = ON | {"lr": 1e-3, "epochs": 5}
UNLIKE = {"entities": ""}  # these two see nothing twice
REPLAYED: dict[str, Any] = {"steps": 400_000, "games": 32, "env": {"continuous_actions": True}}
HUNTED = REPLAYED | {"steps": 300_000}
OFF: dict[str, Any] = {
    "reward": "mean",
    "critic_lr": 2e-3,
    "gamma": 0.9,
    "lam": 0.6,
    "batch": 16,
    "layer_norm": True,
}
OWN = OFF | {"sharing": "own", "critic_sharing": "shared", "entities": "game"}
TD3 = OWN | {"smoothing": 0.05}
SOFT = OWN | {"alpha": 0.01, "alpha_lr": 1e-3}


class Task(NamedTuple):
    """An algorithm with its options on an environment."""

    algorithm: str
    run: dict[str, Any]
    options: dict[str, Any]
    env: str = SPREAD


TASKS: dict[str, Task] = {
    "maa2c": Task("maa2c", RUN, ON),
    "haa2c": Task("haa2c", RUN, ON),
    "mappo": Task("mappo", RUN, PASSES),
    "happo": Task("happo", RUN, PASSES),
    "hatrpo": Task("hatrpo", RUN, PASSES),
    "matd3": Task("matd3", REPLAYED, TD3),
    "hatd3": Task("hatd3", REPLAYED, TD3),
    "masac": Task("masac", REPLAYED, SOFT),
    "hasac": Task("hasac", REPLAYED, SOFT),
    "maddpg": Task("maddpg", REPLAYED, OWN),
    "facmac": Task("facmac", REPLAYED, OWN | {"critic_sharing": ""}),
    "maddpg-tag": Task("maddpg", HUNTED, OFF, TAG),
    "facmac-tag": Task("facmac", HUNTED, OFF, TAG),
    "maa2c-listener": Task("maa2c", RUN, ON | UNLIKE, LISTENER),
    "haa2c-listener": Task("haa2c", RUN, ON | UNLIKE, LISTENER),
    "mappo-listener": Task("mappo", RUN, PASSES | UNLIKE, LISTENER),
    "happo-listener": Task("happo", RUN, PASSES | UNLIKE, LISTENER),
}


def recorded(name: str, seed: int) -> dict[str, Any]:
    """Train and score one run."""
    task = TASKS[name]
    learner, *others = ("adversary", "agent") if task.env == TAG else ("agent",)
    teams = {learner: (task.algorithm, task.options)} | {other: "random" for other in others}
    with tempfile.TemporaryDirectory() as out:
        begun = time.process_time()
        result = shoal.train(
            task.env, teams=teams, seed=seed, out=out, preset=False, **task.run, **SHOWN
        )
        seconds = time.process_time() - begun
        score = shoal.load(whole(result).path).evaluate(EPISODES, True, 12345).score()[learner]
    row: dict[str, Any] = {"task": name, **task._asdict(), "seed": seed}
    row |= {"greedy": score, "steps": result.steps, "cpu_seconds": round(seconds, 1)}
    print(f"{name} seed {seed}: {score:.2f}, {result.steps} steps, {seconds:.0f} s", flush=True)
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown, a line per task."""
    lines = ["| run | score, mean ± deviation (each) | steps | seconds |", "|---|---|---|---|"]
    for task in TASKS:
        mine = sorted((row for row in rows if row["task"] == task), key=lambda row: row["seed"])
        if not mine:
            continue
        scores = [row["greedy"] for row in mine]
        spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
        each = ", ".join(f"{score:.2f}" for score in scores)
        seconds = min(row["cpu_seconds"] for row in mine)
        lines.append(
            f"| {task} | **{statistics.mean(scores):.2f}** ± {spread:.2f} ({each})"
            f" | {mine[0]['steps']:,} | {seconds:.0f} |"
        )
    return "\n".join(lines)


def main(names: list[str]) -> None:
    for task in names or TASKS:
        for seed in range(SEEDS):
            if not any((row["task"], row["seed"]) == (task, seed) for row in read_rows(RESULTS)):
                add_row(RESULTS, recorded(task, seed))
    print(table(read_rows(RESULTS)))


if __name__ == "__main__":
    main(sys.argv[1:])

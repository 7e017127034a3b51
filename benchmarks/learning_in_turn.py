"""Agents that learn in turn or through a mixer, beside the nearest member without it.

    python benchmarks/learning_in_turn.py                 # all that is not yet recorded
    python benchmarks/learning_in_turn.py haa2c maa2c     # these alone

Short runs on `mpe/simple_spread`, every agent with an actor of its own, three seeds, one core. A
run and its neighbour have the settings of the neighbour's preset and equal budgets; learning rates
fall to 0 at the end of each. A score is one agent's mean return p over 1,000 greedy episodes, the
same for all. Seconds are of processor time, compilation included unless it was cached. Runs in
`benchmarks/results/learning_in_turn.json` are not repeated.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import shoal

RESULTS = Path(__file__).parent / "results" / "learning_in_turn.json"
SPREAD = "mpe/simple_spread"
SEEDS = 3
EPISODES = 1_000
SHOWN: dict[str, Any] = {"evaluations": 0, "eval_episodes": 50, "devices": 1, "quiet": True}
ON: dict[str, Any] = {
    "steps": 500_000,
    "games": 32,
    "sharing": "own",
    "lr": 2e-3,
    "gamma": 0.97,
    "minibatches": 2,
}
OFF: dict[str, Any] = {
    "env": {"continuous_actions": True},
    "steps": 150_000,
    "games": 32,
    "sharing": "own",
    "critic_sharing": "shared",
    "reward": "mean",
    "critic_lr": 2e-3,
    "gamma": 0.9,
    "lam": 0.6,
    "batch": 16,
    "layer_norm": True,
}
TD3 = OFF | {"smoothing": 0.05}
SOFT = OFF | {"alpha": 0.01, "alpha_lr": 1e-3}
TASKS: dict[str, tuple[str, dict[str, Any]]] = {
    "maa2c": ("maa2c", ON),
    "haa2c": ("haa2c", ON),
    "hatd3": ("hatd3", TD3),
    "matd3": ("matd3", TD3),
    "facmac": ("facmac", OFF | {"critic_sharing": ""}),
    "maddpg": ("maddpg", OFF),
    "hatrpo": ("hatrpo", ON | {"epochs": 5}),
    "happo": ("happo", ON | {"lr": 1e-3, "epochs": 5}),
    "hasac": ("hasac", SOFT),
    "masac": ("masac", SOFT),
}


def recorded(task: str, seed: int) -> dict[str, Any]:
    """Train and score one run."""
    algorithm, settings = TASKS[task]
    with tempfile.TemporaryDirectory() as out:
        begun = time.process_time()
        result = shoal.train(
            algorithm, SPREAD, seed=seed, out=out, preset=False, **settings, **SHOWN
        )
        seconds = time.process_time() - begun
        score = shoal.load(result.path).evaluate(EPISODES, True, 12345).score()["agent"]
    row = {"task": task, "algorithm": algorithm, "settings": settings, "seed": seed}
    row |= {"greedy": score, "steps": result.steps, "cpu_seconds": round(seconds, 1)}
    print(f"{task} seed {seed}: {score:.2f}, {result.steps} steps, {seconds:.0f} s", flush=True)
    return row


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown, a line per task."""
    lines = ["| run | p, mean ± deviation (each) | steps | seconds |", "|---|---|---|---|"]
    for task in TASKS:
        mine = [row for row in rows if row["task"] == task]
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
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    for task in names or TASKS:
        for seed in range(SEEDS):
            if not any((row["task"], row["seed"]) == (task, seed) for row in rows):
                rows.append(recorded(task, seed))
                RESULTS.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n")
    print(table(rows))


if __name__ == "__main__":
    main(sys.argv[1:])

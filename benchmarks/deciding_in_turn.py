"""Agents that decide in turn (MAT, Sable) beside PPO and MAPPO, and what a decision costs.

    python benchmarks/deciding_in_turn.py train   # every task, three seeds, what is not recorded
    python benchmarks/deciding_in_turn.py train mat sable   # of these alone
    python benchmarks/deciding_in_turn.py flops   # of one joint decision, by number of agents

A run is `shoal train <algorithm> <env> --steps <steps> --seed <seed> --devices 1`, one after
another, on Climbing with its preset, on Spread with the same settings for all. A score is the mean
over 1,000 greedy episodes on games of their own. Operations are those that XLA counts in the
program of `act` for one game, its loop over agents unrolled, before it is optimised.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from records import add_row, read_rows, whole

RESULTS = Path(__file__).parent / "results" / "deciding_in_turn.json"
EPISODES = 1_000
SEEDS = 3
SPREAD = "mpe/simple_spread"
NEIGHBOURS = ("mat", "sable", "ppo", "mappo")
TASKS: list[tuple[str, dict[str, Any], int, tuple[str, ...]]] = [  # env, options, steps, algorithms
    ("matrix/climbing", {}, 50_000, NEIGHBOURS),
    (SPREAD, {}, 1_000_000, NEIGHBOURS),
    (SPREAD, {"N": 10}, 100_000, NEIGHBOURS),
]
# on Spread all have these and no preset; on Climbing each has its preset
ALIKE: dict[str, Any] = {
    "preset": False,
    "games": 32,
    "lr": 1e-3,
    "gamma": 0.95,
    "epochs": 4,
    "minibatches": 4,
    "entropy": 0.01,
    "entropy_decay": 1.0,
    "entities": "game",
    "agent_id": False,
}
SIZES = (3, 6, 12, 25, 50)


def train(algorithm: str, env: str, options: dict[str, Any], steps: int, seed: int) -> dict:
    """One run, and its score."""
    import shoal

    with tempfile.TemporaryDirectory() as out:
        result = shoal.train(
            algorithm,
            env,
            env=options,
            steps=steps,
            seed=seed,
            devices=1,
            **(ALIKE if env == SPREAD else {}),
            evaluations=2,
            eval_episodes=100,
            out=out,
            quiet=True,
        )
        score = shoal.load(whole(result).path).evaluate(EPISODES, True, 12345).score()["agent"]
    return {"greedy": score, "random": result.random["agent"], "seconds": result.seconds}


def record(names: list[str]) -> None:
    """Train what is not recorded yet: a seed of every algorithm before the next."""
    for env, options, steps, algorithms in TASKS:
        for seed in range(SEEDS):
            for algorithm in names or algorithms:
                task = {"algorithm": algorithm, "env": env, "options": options}
                task |= {"steps": steps, "seed": seed}
                if any(task.items() <= row.items() for row in read_rows(RESULTS)):
                    continue
                row = task | train(algorithm, env, options, steps, seed)
                print(row, flush=True)
                add_row(RESULTS, row)
    print(table(read_rows(RESULTS)))


def table(rows: list[dict]) -> str:
    """Markdown, a line per task and algorithm."""
    lines = ["| task | algorithm | steps | greedy, mean ± deviation (each) |", "|---|---|---|---|"]
    for env, options, steps, algorithms in TASKS:
        task = env + "".join(f" {name}={value}" for name, value in options.items())
        for algorithm in algorithms:
            wanted = {"algorithm": algorithm, "env": env, "options": options, "steps": steps}
            scores = [row["greedy"] for row in rows if wanted.items() <= row.items()]
            if not scores:
                continue
            spread = statistics.stdev(scores) if len(scores) > 1 else 0.0
            each = ", ".join(f"{score:.2f}" for score in scores)
            mean = statistics.mean(scores)
            lines.append(
                f"| {task} | {algorithm} | {steps:,} | **{mean:.2f}** ± {spread:.2f} ({each}) |"
            )
    return "\n".join(lines)


def flops() -> None:
    """Print thousands of operations of a joint decision, by algorithm and number of agents."""
    import jax
    import numpy as np

    from shoal.algorithms import find
    from shoal.types import Clock, Discrete, Spec, View

    scan = jax.lax.scan
    jax.lax.scan = lambda *args, **kwargs: scan(*args, **kwargs | {"unroll": True})
    clock = Clock(np.float32(0), np.float32(0))  # type: ignore[arg-type]
    for name in ("ppo", "mat", "sable"):
        kind = find(name)
        counts = []
        for n in SIZES:
            spec = Spec(tuple(f"agent_{i}" for i in range(n)), 18, 18 * n, Discrete(5))
            algorithm = kind(kind.Config(agent_id=False), spec)
            learner = algorithm.init(np.random.default_rng(0))
            arrays: Any = (
                np.zeros((1, n, 18), np.float32),
                np.zeros((1, spec.state), np.float32),
                np.ones((1, n, 5), bool),
                np.ones((1, n), bool),
                np.zeros(1, bool),
                np.zeros((1, n), np.float32),
                np.ones((1, n), np.float32),
            )
            view = View(*arrays)
            act = jax.jit(algorithm.act, static_argnums=5)
            carry = algorithm.carry(learner, 1)
            lowered = act.lower(learner, jax.random.key(0), view, carry, clock, False)
            cost: Any = lowered.cost_analysis()
            counts.append(cost["flops"] / 1000)
        per_agent = [f"{count / n:.1f}" for count, n in zip(counts, SIZES, strict=True)]
        print(name, [f"{count:.0f}" for count in counts], "per agent", per_agent, flush=True)


if __name__ == "__main__":
    command, *names = sys.argv[1:]
    if command == "train":
        record(names)
    else:
        flops()

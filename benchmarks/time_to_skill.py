"""Seconds until a policy plays Spread well: each preset, both cores, whole commands.

    python benchmarks/time_to_skill.py                       # every algorithm, three seeds
    python benchmarks/time_to_skill.py maa2c coma --seeds 5

A run is the preset of `shoal train <algorithm> mpe/simple_spread` with all cores, evaluated 100
times on 200 greedy episodes; it ends at the first evaluation whose mean return of an agent is the
level (-9) or better. Two times are told: of training alone, and of the whole process from its
start, with imports, compilation (the cache is the user's, so the first seed compiles for all) and
evaluations. A run that ends below the level is told as never. Writes `results/time_to_skill.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "time_to_skill.json"
SPREAD = "mpe/simple_spread"
ALGORITHMS = ("maa2c", "a2c", "mappo", "ppo", "coma", "pqn_vdn", "vdn", "qmix", "dqn", "maddpg")
LEVELS = (-11.0, -9.0)


def child(algorithm: str, seed: int, began: float) -> None:
    """One run, printed as JSON."""
    import shoal
    from shoal.monitor.callbacks import Callback, Evaluated, LiveRun

    reached: dict[str, dict[str, float]] = {}

    class Watch(Callback):
        def on_evaluation(self, run: LiveRun, played: Evaluated) -> None:
            score = float(played.returns["agent"].mean())
            for level in LEVELS:
                if score >= level and str(level) not in reached:
                    whole = time.time() - began
                    at = {"training": run.seconds, "whole": whole, "steps": run.steps}
                    reached[str(level)] = at
            if score >= LEVELS[-1]:
                run.stop()

    with tempfile.TemporaryDirectory() as folder:
        shoal.train(
            algorithm,
            SPREAD,
            seed=seed,
            evaluations=100,
            eval_episodes=200,
            out=folder,
            callbacks=[Watch()],
            quiet=True,
        )
    print(json.dumps(reached))


def run(algorithm: str, seed: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", algorithm, str(seed), str(time.time())]
    out = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(out.splitlines()[-1])


def told(rows: list[dict[str, Any]], level: float, clock: str) -> str:
    """Each seed's seconds to a level, and their median if all got there."""
    seconds = [row[str(level)][clock] if str(level) in row else None for row in rows]
    each = ", ".join("never" if second is None else f"{second:.0f}" for second in seconds)
    there = [second for second in seconds if second is not None]
    middle = f"{statistics.median(there):.0f}" if len(there) == len(seconds) else "–"
    return f"**{middle}** ({each})"


def main() -> None:
    parser = argparse.ArgumentParser(description="Seconds until Spread is played well.")
    parser.add_argument("algorithms", nargs="*", default=ALGORITHMS)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    cores = len(os.sched_getaffinity(0))
    print(
        f"| algorithm, {cores} cores | to −11, training | to −9, training | to −9, whole command |"
    )
    print("|---|---|---|---|")
    for algorithm in given.algorithms:
        rows = [run(algorithm, seed) for seed in range(given.seeds)]
        results[algorithm] = {"cores": cores, "runs": rows}
        cells = [told(rows, -11.0, "training"), told(rows, -9.0, "training")]
        print(f"| {algorithm} | {' | '.join([*cells, told(rows, -9.0, 'whole')])} |", flush=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    else:
        main()

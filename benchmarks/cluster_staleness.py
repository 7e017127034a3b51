"""What `--staleness 1` gains in speed, and what it costs in learning.

    python benchmarks/cluster_staleness.py                  # both, three seeds
    python benchmarks/cluster_staleness.py --part speed

Speed: PPO on an environment that waits 5 ms a step (`benchmarks/waiting.py`), with a net so large
that learning takes about as long as playing, so that cores are not the limit of playing. Learning:
PPO on CartPole, the same seeds with and without, the mean return of the policy at the end and after
half of the steps. Writes `results/cluster_staleness.json`, by command.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import shoal
from shoal.config.config import Config
from shoal.engine.host_loop import HostLoop

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "cluster_staleness.json"
WAIT = 5e-3  # seconds of a step
PLAYED = {"games": 16, "window": 25, "steps": 10**7, "devices": 1, "workers": 16}
PPO = {"hidden": 128, "layers": 2, "minibatches": 4, "epochs": 8}


def rate(staleness: int, iterations: int) -> float:
    """Steps per second after two iterations, which compile."""
    settings = PLAYED | {"staleness": staleness}
    config = Config.build("waiting:make_env", {"agent": ("ppo", PPO)}, {"wait": WAIT}, settings)
    s = config.settings
    loop = HostLoop(
        *(config.game, config.algorithms, s.games, s.window, s.steps, 1),
        workers=config.workers,
        staleness=s.staleness,
    )
    try:
        state = loop.init(0)
        program = loop.compile(state, 1)
        for _ in range(2):
            state, _ = program(state)
        before = int(state.steps)
        began = time.perf_counter()
        for _ in range(iterations):
            state, _ = program(state)
        return (int(state.steps) - before) / (time.perf_counter() - began)
    finally:
        loop.close()


def speed(asked: argparse.Namespace) -> dict[str, Any]:
    """Rates without and with staleness, by turns."""
    found: dict[str, list[float]] = {"0": [], "1": []}
    for _ in range(asked.rounds):
        for staleness in (0, 1):
            found[str(staleness)].append(rate(staleness, asked.iterations))
    gain = statistics.median(found["1"]) / statistics.median(found["0"])
    print(f"speed: {found}, {gain:.2f} times as fast", flush=True)
    return {"rates": found, "gain": gain}


def learning(asked: argparse.Namespace) -> dict[str, Any]:
    """Returns after half and all of the steps, by seed."""
    found: dict[str, list[tuple[float, float]]] = {"0": [], "1": []}
    with tempfile.TemporaryDirectory() as place:
        for seed in range(asked.seeds):
            for staleness in (0, 1):
                done = shoal.train(
                    "ppo",
                    "gym:CartPole-v1",
                    steps=asked.steps,
                    seed=seed,
                    staleness=staleness,
                    evaluations=1,
                    eval_episodes=20,
                    devices=1,
                    workers=0,
                    quiet=True,
                    out=place,
                    name=f"{seed}-{staleness}",
                )
                found[str(staleness)].append((_half(done.path), done.scores["agent"]))
                half, end = found[str(staleness)][-1]
                print(f"seed {seed}, staleness {staleness}: {half:.1f}, {end:.1f}", flush=True)
    return {"returns": found}


def _half(run: Path) -> float:
    """The mean return of the evaluation in the middle of a run."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").open()]
    said = [row["evaluation/agent/return"] for row in rows if "evaluation/agent/return" in row]
    return said[len(said) // 2]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", choices=["both", "speed", "learning"], default="both")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40_000)
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    sys.path.insert(0, str(HERE))
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    load = os.getloadavg()[0]
    found: dict[str, Any] = {}
    if asked.part != "learning":
        found["speed"] = speed(asked)
    if asked.part != "speed":
        found["learning"] = learning(asked)
    command = " ".join(["python", "benchmarks/cluster_staleness.py", *sys.argv[1:]])
    records = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    records[command] = {"load": [load, os.getloadavg()[0]], **found}
    RESULTS.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()

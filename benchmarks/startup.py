"""How long a user waits: from the command to its first training steps, and for help.

    python benchmarks/startup.py
    python benchmarks/startup.py --rounds 5 --only ippo

Whole commands on all cores, by the clock. `cold` has an empty compilation cache, `warm` the same
command again with the cache that it left. The first steps are done when the first call of the
training program returns: imports, the compilation of all programs, the evaluation before the first
step, and that call are in the time. Medians over rounds; writes `results/startup.json`.
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

RESULTS = Path(__file__).parent / "results" / "startup.json"
BEGAN = "SHOAL_STARTUP_BEGAN"
SHOAL = [sys.executable, "-m", "shoal"]
SPREAD = "mpe/simple_spread"
WORDS = {"help": ["--help"], "list": ["list"], "help of train": ["train", "--help"]}
RUNS = {
    "ippo": ["ppo", SPREAD, "--no-preset", "--games", "16", "--window", "128"],
    "mappo": ["mappo", SPREAD],
    "qmix-gru": ["qmix", SPREAD, "--no-preset", "--games", "8", "--torso", "gru"],
    "coma": ["coma", SPREAD],
}

if BEGAN in os.environ:  # imported by a run that is timed
    from shoal.monitor.callbacks import Callback, LiveRun

    class First(Callback):
        """Prints when the first call has returned, and ends the run."""

        def on_iteration(self, run: LiveRun, values: dict[str, float]) -> None:
            if run.steps:
                print(f"first steps after {time.time() - float(os.environ[BEGAN])} s", flush=True)
                run.stop()


def first_steps(words: list[str], cache: str) -> float:
    """Seconds until a run has played and learnt for the first time."""
    with tempfile.TemporaryDirectory() as out:
        where = {"XDG_CACHE_HOME": cache, "PYTHONPATH": str(Path(__file__).parent)}
        command = [*SHOAL, "train", *words, "--callbacks", "startup:First", "--out", out]
        environment = os.environ | where | {BEGAN: str(time.time())}
        ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = [line for line in ended.stdout.splitlines() if line.startswith("first steps after")]
    if not lines:
        sys.exit(f"{' '.join(command)} failed:\n{ended.stderr}")
    return float(lines[0].split()[3])


def answer(words: list[str]) -> float:
    """Seconds until a command that trains nothing has ended."""
    began = time.perf_counter()
    subprocess.run([*SHOAL, *words], check=True, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description="Seconds from a command to its first steps.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=RUNS, default=list(RUNS))
    given = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name, words in WORDS.items():
        results[name] = {"seconds": [round(answer(words), 3) for _ in range(2 * given.rounds)]}
    for name in given.only:
        seconds: dict[str, list[float]] = {"cold": [], "warm": []}
        for _ in range(given.rounds):
            with tempfile.TemporaryDirectory() as cache:
                for state in seconds:
                    seconds[state].append(round(first_steps(RUNS[name], cache), 2))
        results[name] = seconds
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    print("| command | seconds, median (each) |\n|---|---|")
    for name, rows in results.items():
        for state, times in rows.items():
            what = f"shoal {' '.join(WORDS[name])}" if name in WORDS else f"{name}, {state}"
            each = ", ".join(f"{second:.3g}" for second in times)
            print(f"| {what} | **{statistics.median(times):.3g}** ({each}) |")


if __name__ == "__main__":
    main()

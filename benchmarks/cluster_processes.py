"""Two processes of jax.distributed beside two devices of one process: how fast is each?

    python benchmarks/cluster_processes.py                     # MAPPO on Spread, three rounds
    python benchmarks/cluster_processes.py --games 1024        # with larger gradient steps
    python benchmarks/cluster_processes.py --algorithm qmix --batch 1024 --updates 4

Words that the script does not know are options of the run. Each round trains the same run twice, by
`shoal train … --devices 2` and by `shoal launch --hosts 2 train … --devices 2`, each with the cores
of this machine. The rate is that of training alone, as `summary.json` says it; the share is that of
the medians. The last checkpoints are compared, too. Writes `results/cluster_processes.json`, by
command.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

RESULTS = Path(__file__).parent / "results" / "cluster_processes.json"
WAYS = {"one process": [], "two processes": ["launch", "--hosts", "2"]}
LIMIT = 600.0  # seconds for a run


def rate(way: str, name: str, home: Path, asked: argparse.Namespace) -> tuple[float, bytes]:
    """Steps per second of a run, and its last checkpoint."""
    words = ["train", asked.algorithm, asked.env, "--steps", str(asked.steps), "--devices", "2"]
    few = ["--evaluations", "0", "--eval-episodes", "4", "--out", str(home), "--name", name]
    command = [sys.executable, "-m", "shoal", *WAYS[way], *words, *few, *asked.options]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=LIMIT)
    run = home / name
    summary = json.loads((run / "summary.json").read_text())
    last = max((run / "checkpoints").iterdir()) / "state.safetensors"
    return summary["steps"] / summary["seconds"], last.read_bytes()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--algorithm", default="mappo")
    parser.add_argument("--env", default="mpe/simple_spread")
    parser.add_argument("--steps", type=int, default=400_000)
    parser.add_argument("--rounds", type=int, default=3)
    asked, options = parser.parse_known_args()
    asked.options = options
    load = os.getloadavg()[0]
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    same = True
    with tempfile.TemporaryDirectory() as place:
        for turn in range(asked.rounds):
            ends = []
            for k, way in enumerate(WAYS):
                found, end = rate(way, f"run-{turn}-{k}", Path(place), asked)
                rates[way].append(found)
                ends.append(end)
                print(f"{way}: {found:,.0f} steps/s, load {os.getloadavg()[0]:.1f}", flush=True)
            same = same and ends[0] == ends[1]
    medians = {way: statistics.median(found) for way, found in rates.items()}
    share = medians["two processes"] / medians["one process"]
    print(f"share {share:.2f}, last checkpoints {'equal' if same else 'differ'}")
    command = " ".join(["python", "benchmarks/cluster_processes.py", *sys.argv[1:]])
    records = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    now = [load, os.getloadavg()[0]]
    records[command] = {"load": now, "rates": rates, "share": share, "same_bits": same}
    RESULTS.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()

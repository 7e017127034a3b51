"""A campaign of short runs on a simulated cluster whose nodes, workers and runs are killed at
random: does every run end, with the weights of an undisturbed one?

    python benchmarks/cluster_kills.py                        # 4 nodes, 20 runs, 50 kills
    python benchmarks/cluster_kills.py --kills 10 --runs 4    # a part of it

Ray's nodes are processes of this machine on loopback. Every few seconds one of three is killed by
`kill -9`: a node (its raylet; another joins in its place), the worker that watches a run, or the
run itself. At the end each run is compared with one that was left alone: last checkpoint, final and
best policy, logs without their timings, episodes and scores, to the bit. A line is printed, and
added to `benchmarks/results/cluster_kills.json`, so that a long record may be made in pieces, each
with a `--seed` of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from kills import differences

from shoal.config.arguments import compose_arguments
from shoal.config.campaign import Job
from shoal.run import trainer
from shoal.store import checkpoint
from shoal.sweep import scheduler

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
from nodes import grow, nodes  # type: ignore

RESULTS = Path(__file__).parent / "results" / "cluster_kills.json"
WORDS = (
    "a2c test/identity --games 4 --window 5 --hidden 8 --layers 1 --evaluations 2"
    " --eval-episodes 2 --steps 40000 --save-every 2000 --devices 1"
)
KINDS = ("node", "worker", "run", "run")
PAUSE = (1.0, 8.0)  # seconds between two kills


def processes(folder: Path) -> list[tuple[int, int]]:
    """Processes that train a run in a folder, and the workers that watch them."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            words = (place / "cmdline").read_bytes().decode(errors="replace")
            parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if "shoal.cli.child" in words and str(folder) in words:
            found.append((int(place.name), parent))
    return found


def strike(kind: str, cluster: Any, folder: Path, rng: random.Random) -> bool:
    """Kill something of that kind; return whether there was one."""
    runs = processes(folder)
    if not runs:
        return False
    if kind == "node" and len(cluster.worker_nodes) > 1:
        victim = rng.choice(list(cluster.worker_nodes))
        cluster.remove_node(victim, allow_graceful=False)
        with contextlib.suppress(Exception):  # a busy machine may be slower than Ray waits
            grow(cluster)
        return True
    run, worker = rng.choice(runs)
    try:
        # of a run whose worker is gone, the parent is somebody else
        watched = b"ray::" in Path(f"/proc/{worker}/cmdline").read_bytes()
        if kind != "run" and not watched:
            return False
        os.kill(run if kind == "run" else worker, signal.SIGKILL)
    except (ProcessLookupError, FileNotFoundError):
        return False
    return True


def torment(jobs: list[Job], asked: argparse.Namespace) -> tuple[dict[Path, Any], Counter[str]]:
    """Run the jobs, and kill until there were enough kills or all have ended."""
    rng = random.Random(asked.seed)
    struck: Counter[str] = Counter()
    outcomes: dict[Path, Any] = {}
    with nodes(asked.nodes) as cluster:
        address = cluster.address
        work = threading.Thread(
            target=lambda: outcomes.update(scheduler.work(jobs, cluster=address)), daemon=True
        )
        work.start()
        until = time.monotonic() + 60 * asked.minutes
        while work.is_alive() and time.monotonic() < until:
            work.join(rng.uniform(*PAUSE))
            begun = any(checkpoint.done(job.path) for job in jobs)
            if work.is_alive() and begun and struck.total() < asked.kills:
                kind = rng.choice(KINDS)
                struck[kind] += strike(kind, cluster, jobs[0].path.parent, rng)
    return outcomes, struck


def alone(jobs: list[Job], home: Path) -> None:
    """The same runs, one after another in this process."""
    config, _ = compose_arguments([*WORDS.split(), "--out", str(home)])
    for seed, job in enumerate(jobs):
        settings = replace(config.settings, seed=seed, name=job.path.name)
        trainer.train(replace(config, settings=settings), quiet=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--minutes", type=float, default=120.0, help="most for the campaign")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(home / "xla")
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        jobs = [
            Job(home / "killed" / f"run-{seed}", [*WORDS.split(), "--seed", str(seed)])
            for seed in range(asked.runs)
        ]
        alone(jobs, home / "alone")
        outcomes, struck = torment(jobs, asked)
        ended = [path for path, outcome in outcomes.items() if outcome.state == "finished"]
        wrong = {path.name: differences(path, home / "alone" / path.name) for path in ended}
        different = {name: found for name, found in wrong.items() if found}
    facts: dict[str, Any] = {
        "command": " ".join(["python", "benchmarks/cluster_kills.py", *sys.argv[1:]]),
        "seconds": round(time.monotonic() - start),
        "load": round(os.getloadavg()[2], 1),
        "nodes": asked.nodes,
        "runs": len(jobs),
        "finished": len(ended),
        "kills": struck.total(),
        "kinds": dict(struck),
        "different": different,
    }
    records = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    RESULTS.write_text(json.dumps([*records, facts], indent=1) + "\n")
    print(
        f"{facts['kills']} kills ({dict(struck)}) on {asked.nodes} nodes:"
        f" {len(ended)} of {len(jobs)} runs ended, {len(different)} differ from undisturbed ones"
    )
    sys.exit(1 if different or len(ended) < len(jobs) else 0)


if __name__ == "__main__":
    main()

"""Runs that are killed at random moments and resumed, against the same runs left alone: the same to
the bit?

    python benchmarks/kills.py                 # 200 kills, two runs at a time
    python benchmarks/kills.py --kills 20

Each configuration is trained once without a pause. Then again and again in a process of its own
that gets `kill -9` at ten moments in a row, each followed by `shoal resume`, and then goes on to
its end. Every second kill waits for a checkpoint to be under way and strikes within milliseconds;
the others fall up to a second after one is complete, or within four seconds of the start of the
process. Of a run on a compiled game the last checkpoint, the final and the best policy, the logs
without their timings, the episodes and the scores must be equal, bytes or values. Of one on the
host, whose environments cannot be saved, what is left must be whole: it ends, no log point or
evaluation is there twice or missing, its last checkpoint is good. A table is printed, and all of it
written to `benchmarks/results/kills.json`.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).parent / "results" / "kills.json"
PER_RUN = 10  # kills in a row
LONGEST = 600  # seconds that any process may take
CLOCKS = {"seconds", "steps_per_second", "sha256"}  # what differs between equal runs
SMALL = "--hidden 8 --layers 1 --games 8 --window 5 --eval-episodes 4 --evaluations 5 --keep 3"
REPLAY = f"{SMALL} --warmup 200 --capacity 2000 --batch 4 --length 4 --updates 2"
RUNS = {
    "ppo, recurrent": f"ppo test/mortal {SMALL} --torso gru --minibatches 1 --devices 1 --steps"
    f" 2e5 --save-every 2e3",
    "dqn, prioritised, 2 devices": f"dqn test/mortal {REPLAY} --priority 0.6 --devices 2"
    f" --steps 6e4 --save-every 600",
    "qmix, prioritised, 2 devices": f"qmix mpe/simple_spread --no-preset {REPLAY} --torso gru"
    f" --priority 0.6"
    " --devices 2 --steps 4e4 --save-every 400",
    "maddpg, two teams": f"maddpg mpe/simple_tag --no-preset {REPLAY} --devices 1 --steps 3e4"
    f" --save-every 300",
    "ppo on the host": f"ppo gym:CartPole-v1 --no-preset {SMALL} --minibatches 1 --workers 0"
    f" --steps 2e4"
    " --save-every 200",
}
HOSTED = ("ppo on the host",)


class MatchStep(NamedTuple):
    """When to kill: so many seconds after the process starts, saves a checkpoint, or begins to
    write one."""

    once: str
    after: float


# one after the other; the longest
MOMENTS = (("writes", 0.004), ("saves", 1.0), ("writes", 0.004), ("starts", 4.0))


class Kill(NamedTuple):
    """One of them."""

    run: str
    once: str
    after: float
    steps: int  # of the newest checkpoint then; -1 if there was none
    writing: bool  # a checkpoint was under way


def shoal(words: str, home: Path) -> subprocess.Popen:
    """A command in a process of its own."""
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(home / "xla"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    with (home / "log").open("a") as log:
        command = [sys.executable, "-m", "shoal", *words.split()]
        return subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | cache, cwd=home)


def finished(process: subprocess.Popen, home: Path) -> None:
    if process.wait(LONGEST):
        sys.exit(f"a run failed:\n{(home / 'log').read_text()[-2000:]}")


def newest(run: Path) -> int:
    """Steps of its newest checkpoint."""
    folder = run / "checkpoints"
    names = (
        [path.name for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []
    )
    return max(map(int, names), default=-1)


def under_way(run: Path) -> set[tuple[str, int]]:
    """Checkpoints that are being written, or were when their writer died."""
    found = set()
    for path in (run / "checkpoints").glob("*.tmp"):
        with contextlib.suppress(FileNotFoundError):
            found.add((path.name, path.stat().st_ino))
    return found


def struck(process: subprocess.Popen, run: Path, moment: MatchStep) -> Kill | None:
    """Kill it then; None if it ended before."""
    # what the one before it left
    left = under_way(run)
    had = newest(run)
    signs = {
        "starts": lambda: True,
        "saves": lambda: had < newest(run) > 0,
        "writes": lambda: newest(run) >= 0 and under_way(run) - left,
    }
    while process.poll() is None and not signs[moment.once]():
        time.sleep(0.0005)
    time.sleep(moment.after)
    process.send_signal(signal.SIGKILL)
    if process.wait(LONGEST) != -signal.SIGKILL:
        return None
    return Kill(run.name, *moment, newest(run), bool(under_way(run) - left))


def begun(words: str, run: Path, home: Path) -> subprocess.Popen:
    """The run going on; from the beginning, if it was killed before anything was saved."""
    if newest(run) >= 0:
        return shoal(f"resume {run}", home)
    shutil.rmtree(run, ignore_errors=True)
    return shoal(f"train {words} --out {home} --name {run.name}", home)


def tormented(words: str, run: Path, home: Path, seed: int) -> list[Kill]:
    """A run killed PER_RUN times, or until it ends, and then left to end."""
    rng = random.Random(seed)
    kills = []
    process = begun(words, run, home)
    while len(kills) < PER_RUN and process.poll() is None:
        once, longest = MOMENTS[len(kills) % len(MOMENTS)]
        if kill := struck(process, run, MatchStep(once, round(rng.random() * longest, 4))):
            kills.append(kill)
            process = begun(words, run, home)
    finished(process, home)
    return kills


# -- comparing -------------------------------------------------------------------------------------


def bare(plain: Any) -> Any:
    """Without what clocks told, and where it lies."""
    if isinstance(plain, dict):
        return {
            key: bare(value)
            for key, value in plain.items()
            if key not in CLOCKS | {"name", "path", "out"}
        }
    return plain


def content(run: Path) -> dict[str, Any]:
    """All that a run left behind and another like it must leave too."""
    last = run / "checkpoints" / f"{newest(run):012d}"
    arrays = [
        last / "state.safetensors",
        *(run / folder / "weights.safetensors" for folder in ("policy", "best")),
    ]
    texts = [
        last / "checkpoint.json",
        *(run / folder / "policy.json" for folder in ("policy", "best")),
    ]
    found: dict[str, Any] = {
        str(path.relative_to(run)): path.read_bytes()
        for path in [*arrays, run / "episodes.csv"]
        if path.exists()
    }
    found |= {
        str(path.relative_to(run)): bare(json.loads(path.read_text()))
        for path in texts
        if path.exists()
    }
    # how long they are depends on the digits of timings
    found[str(texts[0].relative_to(run))].pop("logs")
    lines = (run / "metrics.jsonl").read_text().splitlines()
    found["metrics.jsonl"] = [bare(json.loads(line)) for line in lines]
    return found | {"summary.json": bare(json.loads((run / "summary.json").read_text()))}


def differences(run: Path, whole: Path) -> list[str]:
    """Names of what is not the same."""
    ours = content(run)
    theirs = content(whole)
    return sorted(
        name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)
    )


def flaws(run: Path) -> list[str]:
    """What is wrong with a run on the host that was interrupted."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    evaluated = [line["env_step"] for line in lines if "evaluation/length" in line]
    logged = [line["env_step"] for line in lines if "evaluation/length" not in line]
    with (run / "episodes.csv").open(newline="") as file:
        rows = collections.Counter(
            (row["env_step"], row["episode"], row["agent"]) for row in csv.DictReader(file)
        )
    settings = json.loads((run / "config.json").read_text())["settings"]
    wrong = {
        "log points twice or out of order": logged != sorted(set(logged)),
        "evaluations twice or missing": len(set(evaluated)) != len(evaluated)
        or len(evaluated) < settings["evaluations"],
        "episodes twice": max(rows.values()) > 1,
        "episodes missing": len(rows) != len(evaluated) * settings["eval_episodes"],
        "not trained to its end": newest(run) < settings["steps"],
    }
    return [name for name, is_so in wrong.items() if is_so]


# -- all of it -------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=2)
    asked = parser.parse_args()
    start = time.monotonic()
    quota = -(-asked.kills // len(RUNS))
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(asked.at_once) as pool:
        homes = {name: Path(folder) / f"{i}" for i, name in enumerate(RUNS)}
        for row in pool.map(lambda name: record(name, homes[name], quota), RUNS):
            rows.append(row)
            print(told(row), flush=True)
    total = {
        key: sum(row[key] for row in rows)
        for key in ("kills", "writing", "before_saving", "runs", "mismatches")
    }
    print(told({"name": "all"} | total))
    command = " ".join(["python", "benchmarks/kills.py", *sys.argv[1:]])
    facts = {
        "command": command,
        "seconds": round(time.monotonic() - start),
        **total,
        "configurations": rows,
    }
    RESULTS.write_text(json.dumps(facts, indent=1) + "\n")
    sys.exit(1 if total["mismatches"] else 0)


def record(name: str, home: Path, quota: int) -> dict[str, Any]:
    """A configuration's runs, until it has had its share of kills."""
    words = RUNS[name]
    home.mkdir()
    finished(begun(words, home / "whole", home), home)
    kills: list[Kill] = []
    wrong: dict[str, list[str]] = {}
    runs = 0
    while len(kills) < quota and threading.main_thread().is_alive():
        run = home / f"run-{runs}"
        kills += tormented(words, run, home, seed=1000 * list(RUNS).index(name) + runs)
        found = flaws(run) if name in HOSTED else differences(run, home / "whole")
        wrong |= {run.name: found} if found else {}
        runs += 1
        shutil.rmtree(run)
    return {
        "name": name,
        "command": f"shoal train {words}",
        "compared": "whole" if name in HOSTED else "bit for bit",
        "runs": runs,
        "kills": len(kills),
        "writing": sum(kill.writing for kill in kills),
        "before_saving": sum(kill.steps < 0 for kill in kills),
        "mismatches": len(wrong),
        "different": wrong,
        "moments": [kill._asdict() for kill in kills],
    }


def told(row: dict[str, Any]) -> str:
    """A line of the table."""
    return (
        f"{row['name']:30} {row['kills']:4} kills in {row['runs']:3} runs, {row['writing']:3}"
        f" while a checkpoint was"
        f" being written, {row['before_saving']:3} before the first: {row['mismatches']} mismatches"
    )


if __name__ == "__main__":
    main()

"""One run of a search for settings, recorded: which settings, how well, at what price.

    python benchmarks/search.py mappo mpe/simple_spread --env.continuous-actions --steps 3e6
    python benchmarks/search.py --table

The words are those of `shoal train`; the run is pinned to one core, with seed 100 unless `--seed`
says otherwise: presets are recorded with seeds 0, 1 and 2 (`learning.py`), which the search does
not see, and on other games. A score is one agent's mean return over 1,000 episodes after the last
step. `processor` is the processor time of the whole run, compilation and evaluations included.
Rows are added to `benchmarks/results/search.json`.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import tempfile
import time
from pathlib import Path

from records import add_row, read_rows

RESULTS = Path(__file__).parent / "results" / "search.json"
EPISODES = 1_000
GAMES = 4321  # seed of the games that a search is scored on
SEED = 100
WATCHED = ["--devices", "1", "--evaluations", "10", "--eval-episodes", "200"]


def trial(words: list[str]) -> dict:
    """Train, and score what was trained."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    import shoal
    from shoal.cli.main import main
    from shoal.store.summary import FINISHED

    told = words if "--seed" in words else [*words, "--seed", str(SEED)]
    with tempfile.TemporaryDirectory() as out:
        if main(["train", *told, *WATCHED, "--out", out]):
            raise SystemExit("the run failed")
        processor = time.process_time()
        (run,) = Path(out).iterdir()
        reason = json.loads((run / "summary.json").read_text())["reason"]
        if reason != FINISHED:
            raise SystemExit(f"not recorded: {reason}")
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        player = shoal.load(run)
        scores = {
            how: player.evaluate(EPISODES, how == "greedy", GAMES).score()["agent"]
            for how in ("greedy", "sampled")
        }
    seen = [line for line in lines if "evaluation/agent/return" in line]
    return {
        "command": shlex.join(["shoal", "train", *told]),
        **scores,
        "steps": seen[-1]["env_step"],
        "processor": round(processor),
        "curve": [[line["env_step"], round(line["evaluation/agent/return"], 3)] for line in seen],
    }


def table(rows: list[dict]) -> str:
    """Markdown, a line per run."""
    lines = ["| command | greedy | sampled | steps | processor s |", "|---|---|---|---|---|"]
    lines += [
        f"| `{row['command']}` | {row['greedy']:.3g} | {row['sampled']:.3g} |"
        f" {row['steps'] / 1e6:.1f}M | {row['processor']} |"
        for row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    if sys.argv[1:] != ["--table"]:
        add_row(RESULTS, trial(sys.argv[1:]))
    print(table(read_rows(RESULTS)))

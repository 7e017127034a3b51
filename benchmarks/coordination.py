"""Climbing and Penalty: games whose best joint action is next to the worst.

    python benchmarks/coordination.py            # the presets, ten seeds
    python benchmarks/coordination.py --search   # the settings they were found among, other seeds
    python benchmarks/coordination.py --again    # forget the recorded runs of that kind first

A run is `shoal train <algorithm> <env> --seed <seed> --devices 1` with its preset and the settings
named. All runs share one process, held to one core. A score is one agent's sum of 25 payoffs at the
last evaluation, which is greedy and follows the last step. Seconds are of training alone, after
compilation. Runs already in `benchmarks/results/coordination.json` are not repeated.
"""

from __future__ import annotations

import collections
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).parent / "results" / "coordination.json"
EPISODES = 16
SEEDS = range(10)
SEARCH_SEEDS = range(100, 105)  # none of those that are reported


class Task(NamedTuple):
    """A game and what its best joint action earns in an episode."""

    env: str
    options: dict[str, float]
    optimum: float


TASKS = [
    Task("matrix/climbing", {}, 275.0),
    *[Task("matrix/penalty", {"k": k}, 250.0) for k in (-25, -50, -75, -100)],
]
SEARCHED: list[tuple[str, dict[str, Any]]] = [
    *[("dqn", {"hysteresis": each}) for each in (0.0, 0.01, 0.02, 0.05, 0.1, 1.0)],
    ("dqn", {"sharing": "own"}),
]


class Case(NamedTuple):
    """Runs that differ by seed alone."""

    algorithm: str
    task: Task
    settings: dict[str, Any]  # beside the preset's
    seeds: range

    def row(self, seed: int) -> dict[str, Any]:
        """What names a run among the results."""
        return {
            "algorithm": self.algorithm,
            "env": self.task.env,
            "options": self.task.options,
            "settings": self.settings,
            "seed": seed,
        }


def cases(search: bool) -> list[Case]:
    if search:
        return [
            Case(name, task, settings, SEARCH_SEEDS)
            for name, settings in SEARCHED
            for task in TASKS
        ]
    return [Case("dqn", task, {}, SEEDS) for task in TASKS]


def trained(case: Case, seed: int) -> dict[str, Any]:
    """One run and its score."""
    import shoal

    with tempfile.TemporaryDirectory() as out:
        result = shoal.train(
            case.algorithm,
            case.task.env,
            env=case.task.options,
            seed=seed,
            devices=1,
            evaluations=4,
            eval_episodes=EPISODES,
            out=out,
            quiet=True,
            **case.settings,
        )
    if result.stopped:  # its score is not that of a whole run
        sys.exit(128 + result.stopped)
    return {
        "score": result.scores["agent"],
        "steps": result.steps,
        "seconds": round(result.seconds, 2),
    }


def table(rows: list[dict[str, Any]], wanted: list[Case]) -> str:
    """Markdown, a line per case."""
    lines = [
        "| game | algorithm | seeds | scores | at the optimum | steps | seconds |",
        "|" + "---|" * 7,
    ]
    for case in wanted:
        names = [case.row(seed) for seed in case.seeds]
        mine = [row for row in rows if any(name.items() <= row.items() for name in names)]
        if not mine:
            continue
        scores = collections.Counter(row["score"] for row in mine)
        each = ", ".join(f"{score:g} × {count}" for score, count in scores.most_common())
        words = [f"--{name.replace('_', '-')} {value}" for name, value in case.settings.items()]
        cells = [
            " ".join([case.task.env, *(f"k={k}" for k in case.task.options.values())]),
            " ".join([case.algorithm, *words]),
            f"{mine[0]['seed']}–{mine[-1]['seed']}",
            each,
            f"**{scores[case.task.optimum]} of {len(mine)}**",
            f"{mine[0]['steps'] / 1e3:.0f}k",
            f"{statistics.mean(row['seconds'] for row in mine):.1f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main(words: list[str]) -> None:
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    wanted = cases("--search" in words)
    rows = json.loads(RESULTS.read_text()) if RESULTS.exists() else []
    names = [(case, seed, case.row(seed)) for case in wanted for seed in case.seeds]
    if "--again" in words:
        rows = [row for row in rows if not any(name.items() <= row.items() for *_, name in names)]
    for case, seed, name in names:
        if any(name.items() <= row.items() for row in rows):
            continue
        rows.append(name | trained(case, seed))
        print(json.dumps(rows[-1]), flush=True)
        RESULTS.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    print("\n" + table(rows, wanted))


if __name__ == "__main__":
    main(sys.argv[1:])

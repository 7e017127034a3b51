"""How well a game can be played: how to read the scores of `learning.py`.

    python benchmarks/ceilings.py                       # everything
    python benchmarks/ceilings.py spread tag-random     # some games
    python benchmarks/ceilings.py --openings 8 --sweeps 1 lbf/10x10-3p-3f

Three levels for each game, on the same openings:

- **scripted**: a player that knows who goes where, and steers by a simple rule;
- **planned**: the best action sequence that a search finds (`plans/search.py`). It knows the
  opening, and what a prey will do, and there may be better ones;
- **bound**: each step is relaxed by itself, and agents are wherever they could be. On tag and
  foraging nobody gets more. On spread nobody does by their own force, but agents that push each
  other may be faster: `beyond_bound` counts the openings where the planned ones are.

The optimum lies above planned, and but for pushes below bound. Policies, which know neither the
future of a prey nor what others will do, may be unable to reach it. Results go to
`benchmarks/results/ceilings.json`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from plans.foraging import foraging
from plans.listener import listener
from plans.mpe import Problem
from plans.search import search
from plans.spread import best_brake, spread
from plans.tag import PREYS, tag

from shoal.envs.native.lbf.foraging import Foraging
from shoal.envs.native.mpe.simple_spread import SimpleSpread

RESULTS = Path(__file__).parent / "results" / "ceilings.json"
MANY = 4096  # openings for levels of scripted players alone
CLEARED = 0.999  # of all food


class Task(NamedTuple):
    problem: Callable[[int, int], Problem]  # from openings and chains
    openings: int
    chains: int
    sweeps: int


def spread_of(n: int) -> SimpleSpread:
    return SimpleSpread(N=n, continuous_actions=True)


TASKS = {
    "spread": Task(partial(spread, SimpleSpread()), 256, 16, 5),
    **{
        f"spread-continuous-{n}": Task(partial(spread, spread_of(n)), openings, 8, sweeps)
        for n, openings, sweeps in ((3, 256, 6), (5, 64, 4), (10, 16, 6))
    },
    **{f"tag-{prey}": Task(partial(tag, prey), 32, 16, 3) for prey in PREYS},
    **{
        f"lbf/{board}": Task(partial(foraging, Foraging(**Foraging.said(board))), 32, 16, 2)
        for board in ("10x10-3p-3f", "15x15-3p-5f-v1", "15x15-4p-5f")
    },
}


def told(values: np.ndarray) -> list[float]:
    """Mean and standard error."""
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
    return [round(float(values.mean()), 3), round(float(error), 3)]


def measure(name: str, task: Task) -> dict[str, Any]:
    """The three levels of a game."""
    problem = task.problem(task.openings, task.chains)
    _, records, seconds = search(problem.improve, problem.plan, task.chains, task.sweeps)
    scripted = problem.agents * problem.scripted
    planned = [problem.agents * record for record in records]
    bound = problem.agents * problem.bound
    row: dict[str, Any] = {
        "game": name,
        "openings": task.openings,
        "chains": task.chains,
        "scripted": told(scripted),
        "planned": [told(one) for one in planned],  # after each sweep
        "gain": told(planned[-1] - scripted),
        "bound": told(bound),
        "beyond_bound": int((planned[-1] > bound + 1e-3).sum()),  # openings
        "seconds": [round(one, 1) for one in seconds],
        "seconds_of": "processor, with compilation",
    }
    if name.startswith("lbf"):
        row["cleared"] = [round(float((one > CLEARED).mean()), 3) for one in (scripted, *planned)]
    return row


def table(rows: dict[str, dict[str, Any]]) -> str:
    """Markdown, a line per game."""
    lines = [
        "| game | openings | scripted | planned, after each sweep | gain | bound | seconds |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in TASKS:
        if name not in rows:
            continue
        row = rows[name]
        levels = ", ".join(f"{mean:.2f}" for mean, _ in row["planned"][:-1])
        mean, error = row["planned"][-1]
        cells = [
            name,
            str(row["openings"]),
            "{:.2f} ± {:.2f}".format(*row["scripted"]),
            f"{levels}, **{mean:.2f}** ± {error:.2f}",
            "{:.2f} ± {:.2f}".format(*row["gain"]),
            f"{row['bound'][0]:.2f}",
            f"{row['seconds'][-1]:.0f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def scripts() -> None:
    """Print the levels of scripted players on many openings."""
    games = {
        "spread": SimpleSpread(),
        **{f"spread-continuous-{n}": spread_of(n) for n in (3, 5, 10)},
    }
    for name, game in games.items():
        brake, level = best_brake(game, MANY)
        print(f"{name}, cheapest assignment, brake {brake}: p = {level:.2f}")
    for idle, how in ((0, "landmark known at once"), (1, "known after one step")):
        p = listener(MANY, idle)
        print(f"simple_speaker_listener, {how}: p = {p:.2f}, sum of two {2 * p:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("games", nargs="*", help=f"of {', '.join(TASKS)}, scripts; default: all")
    parser.add_argument("--openings", type=int, help="games to plan for")
    parser.add_argument("--sweeps", type=int, help="searches, each from what the last one found")
    words = parser.parse_args()
    unknown = set(words.games) - {*TASKS, "scripts"}
    if unknown:
        parser.error(f"there is no game {', '.join(sorted(unknown))}")
    changed = {"openings": words.openings, "sweeps": words.sweeps}
    changed = {option: value for option, value in changed.items() if value}
    for name in words.games or TASKS:
        if name == "scripts":
            continue
        row = measure(name, TASKS[name]._replace(**changed))
        row["command"] = " ".join(["python benchmarks/ceilings.py", *_options(changed), name])
        rows: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
        rows[name] = row
        lines = [f"{json.dumps(game)}: {json.dumps(one)}" for game, one in sorted(rows.items())]
        RESULTS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
        print(json.dumps(row), flush=True)
    if not words.games or "scripts" in words.games:
        scripts()
    if RESULTS.exists():
        print("\n" + table(json.loads(RESULTS.read_text())))


def _options(changed: dict[str, int]) -> list[str]:
    return [f"--{option} {value}" for option, value in changed.items()]


if __name__ == "__main__":
    main()

"""How cost grows with agents, games, width and window: IPPO on simple_spread, one core.

    python benchmarks/scaling.py                 # all four, about ten minutes
    python benchmarks/scaling.py games agents    # some of them

For each size: processor time of an iteration (the median of several calls), bytes of the compiled
program's temporary arrays and of its state. An exponent is the slope between the two largest sizes
on logarithmic axes: 1 is linear. Writes `results/scaling.json` and `docs/images/scaling.png`.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results" / "scaling.json"
PICTURE = Path(__file__).parent.parent / "docs" / "images" / "scaling.png"
BASE = {"agents": 3, "games": 64, "width": 64, "window": 25}
SIZES = {
    "agents": (3, 6, 12, 25, 50, 100),
    "games": (16, 128, 1_024, 8_192, 65_536),
    "width": (32, 64, 128, 256, 512),
    "window": (8, 32, 128, 512),
}
SECONDS = 2.0


def measure(agents: int, games: int, width: int, window: int) -> dict[str, float]:
    """An iteration with these sizes."""
    import jax

    from shoal.algorithms import find
    from shoal.engine.loop import Loop
    from shoal.envs import make

    env = make("mpe/simple_spread", N=agents)
    kind = find("ppo")
    algorithm = kind(kind.Config(hidden=width, epochs=1, minibatches=1), env.teams["agent"])
    loop = Loop(env, {"agent": algorithm}, games, window, 10_000_000, 1)
    state = loop.init(0)
    program = loop.program(1).lower(state).compile()
    memory = program.memory_analysis()
    state, _ = jax.block_until_ready(program(state))
    spent: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(spent) < 3 or time.perf_counter() < end:
        began = time.process_time()
        state, _ = jax.block_until_ready(program(state))
        spent.append(time.process_time() - began)
    return {
        "seconds": statistics.median(spent),
        "temporary_bytes": memory.temp_size_in_bytes,
        "state_bytes": memory.argument_size_in_bytes,
    }


def exponent(rows: list[dict[str, Any]], value: str) -> float:
    """How a value grows between the two largest sizes."""
    less, most = rows[-2:]
    return math.log(most[value] / less[value]) / math.log(most["size"] / less["size"])


def draw(results: dict[str, list[dict[str, Any]]]) -> None:
    """A panel for each of the four."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(results), figsize=(3.2 * len(results), 3.0))
    for axis, (name, rows) in zip(axes, results.items(), strict=True):
        sizes = [row["size"] for row in rows]
        for value, unit, colour in (("seconds", 1e-3, "C0"), ("temporary_bytes", 2**20, "C1")):
            label = "ms" if value == "seconds" else "MB"
            label = f"{label}, exponent {exponent(rows, value):.2f}"
            axis.loglog(sizes, [row[value] / unit for row in rows], "o-", label=label, color=colour)
        axis.set_xlabel(name)
        axis.legend(fontsize=7, frameon=False)
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle("An iteration of IPPO on simple_spread, one core", fontsize=9)
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=120)


def main(names: list[str]) -> None:
    unknown = set(names) - set(SIZES)
    if unknown:
        sys.exit(f"unknown {', '.join(sorted(unknown))}; there are {', '.join(SIZES)}")
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for name in names or SIZES:
        print(f"{name:>10}{'ms':>12}{'temporary MB':>14}{'state MB':>10}")
        rows: list[dict[str, Any]] = []
        for size in SIZES[name]:
            row = {"size": size} | measure(**(BASE | {name: size}))
            rows.append(row)
            print(
                f"{size:>10,}{row['seconds'] * 1e3:>12.2f}{row['temporary_bytes'] / 2**20:>14.1f}"
                f"{row['state_bytes'] / 2**20:>10.1f}",
                flush=True,
            )
        print(
            f"{'exponent':>10}{exponent(rows, 'seconds'):>12.2f}"
            f"{exponent(rows, 'temporary_bytes'):>14.2f}{exponent(rows, 'state_bytes'):>10.2f}\n"
        )
        results[name] = rows
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    if set(results) == set(SIZES):
        draw({name: results[name] for name in SIZES})


if __name__ == "__main__":
    main(sys.argv[1:])

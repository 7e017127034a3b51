"""A model of an iteration's time when the games of an environment are played on 1 to 1,000 nodes.

    python benchmarks/cluster_model.py                       # Spread, 1 Gbit/s, 0.5 ms
    python benchmarks/cluster_model.py --step 5e-3 --bandwidth 10 --latency 1e-4

It is a model: its parts are measured here on one machine, small, and the network is assumed. Every
node plays the same number of games. The parts of an iteration on n nodes are:

    broadcast  latency + n x bytes of what acts / bandwidth    the leader sends it to each node
    play       T x (games of a node x step + decide(n x games))
    transfer   latency + n x bytes of a node's window / bandwidth    all come to the leader's link
    learn      fixed + n x games x T x seconds per step

Every node decides on arrays of all games, so that bits do not depend on the number of nodes:
`decide` grows with n. Without staleness an iteration is the sum; with staleness 1 learning runs
beside the other three. Writes `results/cluster_model.json` and `docs/images/cluster_model.png`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).parent / "results" / "cluster_model.json"
PICTURE = Path(__file__).parent.parent / "docs" / "images" / "cluster_model.png"
NODES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
SIZES = (32, 128)  # games of the two measurements
WINDOW = 25
REPEATS = 5


class Line(NamedTuple):
    """Seconds, as a line through two measurements."""

    fixed: float
    each: float

    def at(self, size: float) -> float:
        return self.fixed + self.each * size


class Parts(NamedTuple):
    """What was measured; times in seconds."""

    step: float  # of one game
    decide: Line  # by games
    learn: Line  # by steps
    policy_bytes: int  # of what acts
    window_bytes: float  # of a step of one game


def median(act: Callable[[], Any]) -> float:
    spent = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        act()
        spent.append(time.perf_counter() - began)
    return statistics.median(spent)


def measure(games: int) -> dict[str, float]:
    """The parts of an iteration of PPO on the host with so many games."""
    import jax
    import numpy as np

    from shoal.algorithms import find
    from shoal.engine.host_loop import HostLoop
    from shoal.envs import make

    env = make("pz:mpe2.simple_spread_v3")
    kind = find("ppo")
    algorithm = kind(kind.Config(epochs=4, minibatches=1), env.teams["agent"])
    loop = HostLoop(env, {"agent": algorithm}, games, WINDOW, 10**7)
    with contextlib.closing(loop):
        state = loop.init(0)
        program = loop.compile(state, 1)
        acting = loop._acting(state)
        views, carries = jax.device_get((state.views, state.carries))
        begun = loop._beginning(state.key, state.steps, views, carries)
        arguments = (*acting, begun.clock, views, carries, begun.keys_play, 0)
        jax.block_until_ready(loop._decide(*arguments))
        decide = median(lambda: [jax.block_until_ready(loop._decide(*arguments)) for _ in range(9)])
        played = loop.play(acting, begun.clock, views, carries, begun.keys_play)
        sent = sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(played))
        policy = sum(leaf.nbytes for leaf in acting[1])
        spent: dict[str, list[float]] = {"play": [], "learn": []}
        for name in spent:
            setattr(loop, name, _timed(getattr(loop, name), spent[name]))
        for _ in range(REPEATS):
            state, _ = program(state)
    play = statistics.median(spent["play"])
    return {
        "games": games,
        "decide": decide / 9,
        "play": play,
        "learn": statistics.median(spent["learn"]),
        "step": (play / WINDOW - decide / 9) / games,
        "policy_bytes": policy,
        "window_bytes": sent / games / WINDOW,
    }


def _timed(act: Callable[..., Any], into: list[float]) -> Callable[..., Any]:
    import jax

    def timed(*args: Any) -> Any:
        began = time.perf_counter()
        done = jax.block_until_ready(act(*args))
        into.append(time.perf_counter() - began)
        return done

    return timed


def line(small: dict[str, float], large: dict[str, float], name: str, per: int = 1) -> Line:
    """The line through two measurements, by games times `per`; no part of it is negative."""
    each = (large[name] - small[name]) / (large["games"] - small["games"]) / per
    each = max(each, 0.0)
    return Line(max(small[name] - each * small["games"] * per, 0.0), each)


def predict(parts: Parts, nodes: int, games: int, bandwidth: float, latency: float) -> dict:
    """Seconds of each part, and steps per second without and with staleness."""
    steps = nodes * games * WINDOW
    seconds = {
        "broadcast": latency + nodes * parts.policy_bytes / bandwidth,
        "play": WINDOW * (games * parts.step + parts.decide.at(nodes * games)),
        "transfer": latency + steps * parts.window_bytes / bandwidth,
        "learn": parts.learn.at(steps),
    }
    whole = sum(seconds.values())
    beside = max(whole - seconds["learn"], seconds["learn"])
    return {"nodes": nodes, **seconds, "rate": steps / whole, "stale_rate": steps / beside}


def saturation(rows: list[dict], rate: str) -> int | None:
    """The first number of nodes whose efficiency is below one half."""
    alone = rows[0][rate]
    return next((r["nodes"] for r in rows if r[rate] < 0.5 * alone * r["nodes"]), None)


def draw(rows: list[dict]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6))
    nodes = [row["nodes"] for row in rows]
    for part in ("broadcast", "play", "transfer", "learn"):
        left.loglog(nodes, [row[part] for row in rows], label=part)
    left.set(xlabel="nodes", ylabel="seconds of an iteration", title="parts")
    left.legend()
    right.loglog(nodes, [row["rate"] for row in rows], label="staleness 0")
    right.loglog(nodes, [row["stale_rate"] for row in rows], label="staleness 1")
    ideal = [rows[0]["rate"] * n for n in nodes]
    right.loglog(nodes, ideal, ":", color="grey", label="ideal, from one node")
    right.set(xlabel="nodes", ylabel="steps per second", title="rate (model)")
    right.legend()
    figure.tight_layout()
    figure.savefig(PICTURE, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--games", type=int, default=16, help="of each node")
    parser.add_argument("--step", type=float, default=0.0, help="seconds; 0 takes Spread's own")
    parser.add_argument("--bandwidth", type=float, default=1.0, help="of the leader, in Gbit/s")
    parser.add_argument("--latency", type=float, default=5e-4, help="of an exchange, in seconds")
    asked = parser.parse_args()
    from shoal import devices

    devices.setup(1)
    small, large = (measure(games) for games in SIZES)
    parts = Parts(
        asked.step or large["step"],
        line(small, large, "decide"),
        line(small, large, "learn", WINDOW),
        int(large["policy_bytes"]),
        large["window_bytes"],
    )
    network = (asked.bandwidth * 1e9 / 8, asked.latency)
    rows = [predict(parts, nodes, asked.games, *network) for nodes in NODES]
    saturates = {rate: saturation(rows, rate) for rate in ("rate", "stale_rate")}
    facts = {
        "command": " ".join(["python", "benchmarks/cluster_model.py", *sys.argv[1:]]),
        "load": os.getloadavg()[0],
        "asked": vars(asked),
        "measured": [small, large],
        "parts": parts._asdict(),
        "predicted": rows,
        "half_efficiency_at": saturates,
    }
    RESULTS.write_text(json.dumps(facts, indent=1) + "\n")
    draw(rows)
    print("| nodes | broadcast | play | transfer | learn | steps/s | with staleness 1 |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        seconds = [f"{row[part]:.3f}" for part in ("broadcast", "play", "transfer", "learn")]
        rates = [f"{row[rate]:,.0f}" for rate in ("rate", "stale_rate")]
        print(f"| {row['nodes']} | {' | '.join([*seconds, *rates])} |")
    print(f"load {facts['load']:.1f}; half efficiency at {saturates}; {parts}")


if __name__ == "__main__":
    main()

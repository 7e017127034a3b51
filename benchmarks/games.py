"""Level-based foraging and the robot warehouse: the packages and our native games, side by side on
one core.

    python benchmarks/games.py                     # about 5 minutes
    python benchmarks/games.py rware/tiny-2ag      # some of them
    python benchmarks/games.py --games 128         # another batch; 1024 unless told

Both play at random, for the same time, in turn: what is told is the median of the rounds, in steps
of a whole game per second. Writes `benchmarks/results/games.json` and a table.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

IDS = (
    "lbf/8x8-2p-2f-coop",
    "lbf/10x10-3p-3f",
    "lbf/15x15-4p-5f",
    "rware/tiny-2ag",
    "rware/tiny-4ag",
    "rware/small-4ag",
)
ROUNDS = 5
SECONDS = 3.0
STEPS = 100
RESULTS = Path(__file__).parent / "results" / "games.json"


def native(env_id: str, games: int) -> Callable[[], float]:
    """A function that plays our game for a while and tells its rate."""
    import jax

    from shoal.envs import make

    env = make(env_id)
    spec = env.teams["agent"]
    keys = jax.random.split(jax.random.key(2), STEPS)
    actions = jax.random.randint(jax.random.key(1), (STEPS, games, spec.n), 0, spec.action.size)

    def step(carry: Any, now: Any) -> tuple[Any, None]:
        # the views are carried, so each step makes them
        return env.step(now[0], carry[0], {"agent": now[1]}), None

    opening = jax.jit(env.reset, static_argnums=1)(jax.random.key(0), games)
    program = (
        jax.jit(lambda opening: jax.lax.scan(step, opening, (keys, actions))[0])
        .lower(opening)
        .compile()
    )
    now = jax.block_until_ready(program(opening))

    def play() -> float:
        nonlocal now
        rounds = 0
        began = time.perf_counter()
        while time.perf_counter() < began + SECONDS:
            now = jax.block_until_ready(program(now))
            rounds += 1
        return rounds * STEPS * games / (time.perf_counter() - began)

    return play


def package(env_id: str) -> Callable[[], float]:
    """The same for the package's game."""
    import gymnasium

    game, _, rest = env_id.partition("/")
    if game == "rware":
        env = gymnasium.make(f"rware:rware-{rest}-v2", disable_env_checker=True)
    else:
        sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
        from shoal.envs import make

        env = importlib.import_module("lbf_bridge").real(make(env_id))
    env = env.unwrapped
    env.reset(seed=0)
    acts = [env.action_space.sample() for _ in range(1000)]

    def play() -> float:
        steps = 0
        began = time.perf_counter()
        while time.perf_counter() < began + SECONDS:
            over = env.step(acts[steps % len(acts)])[2]
            steps += 1
            if over:
                env.reset()
        return steps / (time.perf_counter() - began)

    return play


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ids", nargs="*", default=IDS)
    parser.add_argument("--games", type=int, default=1024, help="of ours in a batch")
    given = parser.parse_args()
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    rows = {}
    for env_id in given.ids:
        sides = {"package": package(env_id), "shoal": native(env_id, given.games)}
        rates: dict[str, list[float]] = {side: [] for side in sides}
        for _ in range(ROUNDS):
            for side, play in sides.items():
                rates[side].append(play())
        row = {side: median(found) for side, found in rates.items()}
        rows[env_id] = row | {"ratio": row["shoal"] / row["package"], "games": given.games}
        print(
            f"{env_id:22s} {row['package']:10,.0f} {row['shoal']:12,.0f}"
            f" {rows[env_id]['ratio']:8.0f}x",
            flush=True,
        )
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()

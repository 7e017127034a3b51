"""How the rate grows with workers that act where their games are, and what a slow network costs.

    python benchmarks/cluster_scaling.py                     # 1, 2, 4, 8, 16 workers
    python benchmarks/cluster_scaling.py --workers 1 16 --delay 0.02 --staleness 1

The environment waits 5 ms a step (`benchmarks/waiting.py`), so that cores are not the limit. Every
worker has the same number of games, so 16 workers play 16 times as many. PPO learns from whole
windows by `RemoteLoop`. A worker is a thread of this process with a process of its own for its
games; what crosses its border is pickled, and each way waits for `--delay` seconds in the second
half of the measurements. So placement, the network's own bandwidth and Ray are left out. Efficiency
is the rate divided by that of one worker times the number of workers. Writes
`results/cluster_scaling.json`, by command.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import sys
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from shoal.config.config import Config
from shoal.engine.remote_loop import RemoteLoop, WindowPlayer, played_by_hosts

RESULTS = Path(__file__).parent / "results" / "cluster_scaling.json"
WAIT = 5e-3  # seconds of a step
PPO = {"hidden": 16, "layers": 1, "minibatches": 1, "epochs": 1}


class Thread:
    """A host in a thread; both ways through its border are bytes, and take `delay` seconds."""

    def __init__(self, config: str, delay: float, rows: range):
        self.player = WindowPlayer(config, (rows.start, rows.stop), 1)
        self.delay = delay
        self.pool = ThreadPoolExecutor(1)
        self.pending: Future[bytes]

    def ask(self, what: str, *args: Any) -> None:
        self.pending = self.pool.submit(self._do, pickle.dumps((what, args)))

    def _do(self, sent: bytes) -> bytes:
        what, args = pickle.loads(sent)
        time.sleep(self.delay)
        answer = pickle.dumps(getattr(self.player, what)(*args))
        time.sleep(self.delay)
        return answer

    def answer(self) -> Any:
        return pickle.loads(self.pending.result())

    def restart(self) -> None:
        raise NotImplementedError("no host is lost here")

    def close(self) -> None:
        self.pool.submit(self.player.close).result()
        self.pool.shutdown()


def rate(workers: int, delay: float, asked: argparse.Namespace) -> float:
    """Steps per second after the first two iterations, which compile."""
    games = workers * asked.games
    settings = {
        "games": games,
        "window": asked.window,
        "steps": 10**7,
        "devices": 1,
        "workers": workers,
        "staleness": asked.staleness,
    }
    config = Config.build("waiting:make_env", {"agent": ("ppo", PPO)}, {"wait": WAIT}, settings)
    s = config.settings
    loop = RemoteLoop(
        *(config.game, config.algorithms, s.games, s.window, s.steps, 1),
        workers=workers,
        staleness=s.staleness,
        host=partial(Thread, played_by_hosts(config), delay),
    )
    try:
        state = loop.init(0)
        program = loop.compile(state, 1)
        for _ in range(2):
            state, _ = program(state)
        before = int(state.steps)
        began = time.perf_counter()
        for _ in range(asked.iterations):
            state, _ = program(state)
        spent = time.perf_counter() - began
        if loop.failure:
            raise loop.failure
        return (int(state.steps) - before) / spent
    finally:
        loop.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--games", type=int, default=4, help="of each worker")
    parser.add_argument("--window", type=int, default=50)
    parser.add_argument("--iterations", type=int, default=5)
    parser.add_argument("--delay", type=float, default=0.02, help="seconds each way")
    parser.add_argument("--staleness", type=int, default=0)
    asked = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    load = os.getloadavg()[0]
    rows = []
    for workers in asked.workers:
        plain = rate(workers, 0.0, asked)
        slow = rate(workers, asked.delay, asked)
        first = rows[0] if rows else {"workers": workers, "rate": plain}
        efficiency = plain / workers / (first["rate"] / first["workers"])
        rows.append(
            {
                "workers": workers,
                "rate": plain,
                "efficiency": efficiency,
                "delayed_rate": slow,
                "delayed_share": slow / plain,
            }
        )
        print(
            f"{workers} workers: {plain:,.0f} steps/s, efficiency {efficiency:.2f}; with"
            f" {asked.delay * 1e3:g} ms each way {slow:,.0f}, {slow / plain:.2f} of it",
            flush=True,
        )
    command = " ".join(["python", "benchmarks/cluster_scaling.py", *sys.argv[1:]])
    records = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    records[command] = {"load": [load, os.getloadavg()[0]], "rows": rows}
    RESULTS.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()

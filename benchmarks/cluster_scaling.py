"""How the rate grows with workers that act where their games are, and what a slow network costs.

    python benchmarks/cluster_scaling.py                                    # 1, 4, 16 workers
    python benchmarks/cluster_scaling.py --rllib <its environment>/bin/python   # RLlib beside it
    python benchmarks/cluster_scaling.py --workers 1 16 --delay 0.05 --staleness 1

The environment waits 5 ms a step (`benchmarks/waiting.py`), so that cores are not the limit. Every
worker has the same number of games, so 16 workers play 16 times as many. PPO learns from whole
windows by `ClusterLoop`: workers are actors of a Ray that this script starts on loopback, as they
are with `shoal train … --workers 16 --cluster auto`. Each number of workers is measured twice, the
second time with `--delay` seconds injected at each way through an actor's border. With `--rllib`,
EnvRunners of RLlib are measured after it (`cluster_rllib.py`), with as many environments, steps and
iterations. Efficiency is the rate divided by that of one worker times the number of workers. Writes
`results/cluster_scaling.json`, by command.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from shoal.config.config import Config
from shoal.engine.ray_host import ClusterLoop, RayHosts
from shoal.engine.remote_loop import WindowPlayer

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "cluster_scaling.json"
WAIT = 5e-3  # seconds of a step
PPO = {"hidden": 16, "layers": 1, "minibatches": 1, "epochs": 1}
STORE = 200_000_000  # bytes of Ray's object store
# a Ray of some minutes on loopback leaves no token in the user's home
RAY = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}


class DelayedPlayer(WindowPlayer):
    """A `WindowPlayer` whose questions and answers are late."""

    delay = 0.0

    def delay_by(self, seconds: float) -> None:
        self.delay = seconds

    def play(self, acting: Any, clock: Any, views: Any, carries: Any, keys: Any) -> Any:
        time.sleep(self.delay)
        played = super().play(acting, clock, views, carries, keys)
        time.sleep(self.delay)
        return played


class DelayedHosts(RayHosts):
    """`RayHosts` of such players."""

    def __init__(self, config: Config):
        super().__init__("auto", config, lambda: False)
        options = {"num_cpus": 1, "runtime_env": {"env_vars": {"PYTHONPATH": _paths()}}}
        self.kind = self.ray.remote(**options)(DelayedPlayer)


def _paths() -> str:
    return os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])


def rates(workers: int, asked: argparse.Namespace) -> tuple[float, float]:
    """Steps per second without and with delay, after two iterations, which compile."""
    settings = {
        "games": workers * asked.games,
        "window": asked.window,
        "steps": 10**7,
        "devices": 1,
        "workers": workers,
        "staleness": asked.staleness,
    }
    config = Config.build("waiting:make_env", {"agent": ("ppo", PPO)}, {"wait": WAIT}, settings)
    s = config.settings
    hosts = DelayedHosts(config)
    loop = ClusterLoop(
        *(config.game, config.algorithms, s.games, s.window, s.steps, 1),
        workers=workers,
        staleness=s.staleness,
        host=hosts,
        share_out=hosts.share_out,
    )
    loop.hosts = hosts
    try:
        state = loop.init(0)
        program = loop.compile(state, 1)
        found = []
        for delay in (0.0, asked.delay):
            for _, host in loop.opened.hosts:  # type: ignore[union-attr]
                host.ask("delay_by", delay)
                host.answer()
            for _ in range(2):
                state, _ = program(state)
            before = int(state.steps)
            began = time.perf_counter()
            for _ in range(asked.iterations):
                state, _ = program(state)
            found.append((int(state.steps) - before) / (time.perf_counter() - began))
            if loop.failure:
                raise loop.failure
        return found[0], found[1]
    finally:
        loop.close()


def ours(asked: argparse.Namespace) -> list[dict[str, float]]:
    """Shoal's rates, by number of workers."""
    import ray

    ray.init(
        num_cpus=max(asked.workers),
        include_dashboard=False,
        object_store_memory=STORE,
        log_to_driver=False,
        _node_ip_address="127.0.0.1",
    )
    rows = []
    try:
        for workers in asked.workers:
            plain, slow = rates(workers, asked)
            rows.append({"workers": workers, "rate": plain, "delayed_rate": slow})
            first = rows[0]["rate"] / rows[0]["workers"]
            rows[-1] |= {"efficiency": plain / workers / first, "delayed_share": slow / plain}
            print(
                f"shoal, {workers} workers: {plain:,.0f} steps/s, efficiency"
                f" {rows[-1]['efficiency']:.2f}; with {asked.delay * 1e3:g} ms each way"
                f" {slow:,.0f}, {slow / plain:.2f} of it, load {os.getloadavg()[0]:.1f}",
                flush=True,
            )
    finally:
        ray.shutdown()
    return rows


def rllib(asked: argparse.Namespace) -> list[dict[str, float]]:
    """RLlib's rates, by number of runners, in its own environment."""
    sizes = {"games": asked.games, "window": asked.window, "iterations": asked.iterations}
    words = [f"--{name}={value}" for name, value in sizes.items()]
    command = [asked.rllib, str(HERE / "cluster_rllib.py"), *words, "--workers"]
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [*command, *map(str, asked.workers)], env=own, stdout=subprocess.PIPE, text=True, check=True
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for row in rows:
        print(
            f"rllib, {row['workers']} runners: {row['rate']:,.0f} steps/s, efficiency"
            f" {row['efficiency']:.2f}, load {row['load']:.1f}",
            flush=True,
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--games", type=int, default=16, help="of each worker")
    parser.add_argument("--window", type=int, default=25)
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--delay", type=float, default=0.02, help="seconds each way")
    parser.add_argument("--staleness", type=int, default=0)
    parser.add_argument("--rllib", default="", help="the Python of an environment with RLlib")
    asked = parser.parse_args()
    sys.path.insert(0, str(HERE))
    os.environ.update(RAY)
    load = os.getloadavg()[0]
    found = {"rows": ours(asked)} | ({"rllib": rllib(asked)} if asked.rllib else {})
    own = [word for word in sys.argv[1:] if word != asked.rllib]  # the path is nobody's business
    command = " ".join(["python", "benchmarks/cluster_scaling.py", *own])
    records = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    records[command] = {"load": [load, os.getloadavg()[0]], **found}
    RESULTS.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()

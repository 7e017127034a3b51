"""RLlib's EnvRunners on the environment of `cluster_scaling.py`.

It needs an environment of its own:

    pip install torch==2.13.0 "ray[rllib]"
    python benchmarks/cluster_rllib.py --workers 1 4 16

PPO, as many environments per runner and steps per window as Shoal has there. Prints a line of JSON
for each number of runners; needs neither Shoal nor JAX. `cluster_scaling.py --rllib` calls it.
"""

from __future__ import annotations

import argparse
import json
import os
import time

import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune.registry import register_env
from waiting import Waiting


def rate(workers: int, asked: argparse.Namespace) -> float:
    """Environment steps per second after the first iteration."""
    config = (
        PPOConfig()
        .environment("waiting")
        .env_runners(
            num_env_runners=workers,
            num_envs_per_env_runner=asked.games,
            rollout_fragment_length=asked.window,
        )
        .training(
            train_batch_size_per_learner=workers * asked.games * asked.window,
            minibatch_size=workers * asked.games * asked.window,
            num_epochs=1,
        )
    )
    algorithm = config.build_algo()
    try:
        algorithm.train()
        began = time.perf_counter()
        steps = 0
        for _ in range(asked.iterations):
            steps += algorithm.train()["env_runners"]["num_env_steps_sampled"]
        return steps / (time.perf_counter() - began)
    finally:
        algorithm.stop()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--games", type=int, default=16, help="of each runner")
    parser.add_argument("--window", type=int, default=25)
    parser.add_argument("--iterations", type=int, default=4)
    asked = parser.parse_args()
    # runners wait for their environments: as many as asked for fit on any number of cores
    ray.init(num_cpus=max(asked.workers) + 1, include_dashboard=False, _node_ip_address="127.0.0.1")
    register_env("waiting", lambda options: Waiting())
    first = 0.0
    for workers in asked.workers:
        found = rate(workers, asked)
        first = first or found / workers
        row = {"workers": workers, "rate": found, "efficiency": found / workers / first}
        print(json.dumps(row | {"load": os.getloadavg()[0]}), flush=True)


if __name__ == "__main__":
    main()

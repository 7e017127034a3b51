"""A trained policy in somebody else's loop: mpe2's own simple_spread, step by step."""

import argparse

import numpy as np
from mpe2 import simple_spread_v3

import shoal


def main(steps: float, out: str) -> None:
    result = shoal.train("ippo", "mpe/simple_spread", steps=steps, out=out, quiet=True)
    player = shoal.load(result.path)

    env = simple_spread_v3.parallel_env()
    observations, _ = env.reset(seed=0)
    total = 0.0
    while env.agents:
        actions = {agent: int(action) for agent, action in player.act(observations).items()}
        observations, rewards, *_ = env.step(actions)
        total += float(np.mean(list(rewards.values())))
    print(f"one agent's return in mpe2's own environment: {total:.1f}")

    batch = {agent: np.zeros((5, 18), np.float32) for agent in env.possible_agents}
    print("five decisions at once:", player.act(batch)["agent_0"])
    print("one agent alone:", player.agent("agent_0").act({"agent_0": np.zeros(18, np.float32)}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=float, default=5e5)
    parser.add_argument("--out", default="runs")
    main(**vars(parser.parse_args()))

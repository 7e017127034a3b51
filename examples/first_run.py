"""Train MAPPO on simple_spread, read the result, load the policy, act."""

import argparse

import numpy as np

import shoal


def main(steps: float, out: str) -> None:
    result = shoal.train("mappo", "mpe/simple_spread", steps=steps, seed=0, out=out)
    print(
        f"one agent's return: {result.before['agent']:.1f} before,"
        f" {result.scores['agent']:.1f} after training"
    )

    player = shoal.load(result.path)
    observations = {f"agent_{i}": np.zeros(18, np.float32) for i in range(3)}
    print(player.act(observations))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=float, default=1e6)
    parser.add_argument("--out", default="runs")
    main(**vars(parser.parse_args()))

"""An algorithm per team in simple_tag, then a rematch against the frozen winner."""

import argparse

import shoal


def main(steps: float, out: str) -> None:
    both = {"adversary": "ippo", "agent": ("ppo", {"entropy": 0.02})}
    first = shoal.train("mpe/simple_tag", teams=both, steps=steps, out=out)
    print("both learn:", first.scores)

    again = {"adversary": f"frozen:{first.path}", "agent": "mappo"}
    second = shoal.train("mpe/simple_tag", teams=again, steps=steps, out=out)
    print("the prey learns against the frozen predators:", second.scores)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=float, default=1e6)
    parser.add_argument("--out", default="runs")
    main(**vars(parser.parse_args()))

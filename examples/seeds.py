"""Several seeds side by side, their scores and spread."""

import argparse
import json

import shoal


def main(steps: float, out: str) -> None:
    result = shoal.train("maa2c", "mpe/simple_spread", seeds=3, steps=steps, out=out, quiet=True)
    group = json.loads((result.path / "group.json").read_text())
    for name, scores in group["scores"].items():
        print(name, f"{scores['agent']:.2f}")
    print(
        f"mean {group['mean']['agent']:.2f}, deviation between seeds"
        f" {group['deviation']['agent']:.2f}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=float, default=5e5)
    parser.add_argument("--out", default="runs")
    main(**vars(parser.parse_args()))

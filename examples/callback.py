"""A hook that stops a run when an evaluation is good enough."""

import argparse

import shoal


class GoodEnough(shoal.Callback):
    """Stops when a team's mean return reaches a level."""

    def __init__(self, team: str, level: float):
        self.team = team
        self.level = level

    def on_evaluation(self, run, played):
        score = played.score()[self.team]
        print(f"{run.steps:,} steps: {score:.2f}")
        if score >= self.level:
            run.stop()


def main(steps: float, out: str) -> None:
    hooks = [GoodEnough("agent", -12.0)]
    result = shoal.train(
        "mappo", "mpe/simple_spread", steps=steps, out=out, callbacks=hooks, quiet=True
    )
    print(f"ended after {result.steps:,} steps with {result.scores['agent']:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=float, default=2e6)
    parser.add_argument("--out", default="runs")
    main(**vars(parser.parse_args()))

"""A PettingZoo environment of one's own: two agents on a line that must meet."""

import argparse

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

import shoal


class Meet(ParallelEnv):
    """Both see both places; each moves left, stays or moves right. The nearer they are, the
    better."""

    metadata = {"name": "meet"}

    def __init__(self, size: int = 9, limit: int = 20):
        self.size = size
        self.limit = limit
        self.possible_agents = ["walker_0", "walker_1"]

    def observation_space(self, agent: str) -> Box:
        return Box(-1.0, 1.0, (2,), np.float32)

    def action_space(self, agent: str) -> Discrete:
        return Discrete(3)

    def reset(self, seed=None, options=None):
        self.places = np.random.default_rng(seed).integers(0, self.size, 2)
        self.agents = list(self.possible_agents)
        self.steps = 0
        return self._observations(), {agent: {} for agent in self.agents}

    def step(self, actions):
        moves = np.array([actions[agent] - 1 for agent in self.agents])
        self.places = np.clip(self.places + moves, 0, self.size - 1)
        self.steps += 1
        reward = -float(abs(self.places[0] - self.places[1]))
        late = self.steps >= self.limit
        results = (
            self._observations(),
            dict.fromkeys(self.agents, reward),
            dict.fromkeys(self.agents, False),
            dict.fromkeys(self.agents, late),  # only time ran out: a truncation
            {agent: {} for agent in self.agents},
        )
        if late:
            self.agents = []
        return results

    def _observations(self):
        seen = (2 * self.places / (self.size - 1) - 1).astype(np.float32)
        return {"walker_0": seen, "walker_1": seen[::-1].copy()}


def main(steps: float, out: str) -> None:
    result = shoal.train(
        "ippo", "own_environment:Meet", env={"size": 7}, games=16, steps=steps, out=out
    )
    print(f"random {result.random['walker']:.1f}, trained {result.scores['walker']:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=float, default=1e5)
    parser.add_argument("--out", default="runs")
    main(**vars(parser.parse_args()))

"""A small battle with the interface of SMAC: allies on a grid against enemies who follow a
script."""

from __future__ import annotations

import numpy as np

MOVES = np.array([[0, 1], [0, -1], [1, 0], [-1, 0]])  # actions 2 to 5
FIRST_TARGET = 6  # actions before it: 0 nothing (the dead only), 1 stop, then the moves
WIDTH, HEIGHT, RANGE, HEALTH, BONUS = 8, 5, 2, 3, 10.0


class Skirmish:
    """Enemies march at the nearest ally and hit it when in range; whoever has no health left is
    dead."""

    def __init__(
        self, allies: int = 3, enemies: int = 3, episode_limit: int = 30, tells_limit: bool = True
    ) -> None:
        self.n_agents, self.n_enemies, self.n_actions = allies, enemies, FIRST_TARGET + enemies
        self.episode_limit, self.tells_limit = episode_limit, tells_limit
        self.rng = np.random.default_rng(0)

    def seed(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def get_env_info(self) -> dict:
        units = self.n_agents + self.n_enemies
        return {
            "n_agents": self.n_agents,
            "n_actions": self.n_actions,
            "obs_shape": 3 * units,
            "state_shape": 3 * units + 1,
            "episode_limit": self.episode_limit,
        }

    def reset(self) -> None:
        self.time = 0
        rows = self.rng.integers(0, HEIGHT, self.n_agents + self.n_enemies)
        self.at = np.stack([np.where(np.arange(len(rows)) < self.n_agents, 0, WIDTH - 1), rows], -1)
        self.health = np.full(len(rows), HEALTH)

    def get_obs(self) -> list[np.ndarray]:
        return [self._seen_by(i) for i in range(self.n_agents)]

    def get_state(self) -> np.ndarray:
        return np.concatenate(
            [self.at.ravel() / WIDTH, self.health / HEALTH, [self.time / self.episode_limit]]
        )

    def get_avail_actions(self) -> list[list[int]]:
        return [self._available(i) for i in range(self.n_agents)]

    def step(self, actions: list[int]) -> tuple[float, bool, dict]:
        assert all(type(action) is int for action in actions), "plain numbers, please"
        for i, action in enumerate(actions):
            if not self._available(i)[action]:
                raise ValueError(f"agent {i} cannot do {action}")
        before = self.health.copy()
        for i, action in enumerate(actions):
            if action >= FIRST_TARGET:
                self._hit(self.n_agents + action - FIRST_TARGET)
            elif action >= 2:
                self.at[i] += MOVES[action - 2]
        for enemy in np.flatnonzero(self.health[self.n_agents :] > 0) + self.n_agents:
            self._march(int(enemy))
        self.time += 1
        hurt = before - self.health
        won, lost = self._dead(slice(self.n_agents, None)), self._dead(slice(self.n_agents))
        reward = float(
            hurt[self.n_agents :].sum() - 0.5 * hurt[: self.n_agents].sum() + BONUS * won
        )
        late = self.time >= self.episode_limit and not (won or lost)
        info = {"battle_won": bool(won)} | (
            {"episode_limit": True} if late and self.tells_limit else {}
        )
        return reward, bool(won or lost or late), info

    def close(self) -> None:
        self.at = self.health = np.zeros(0)

    def _dead(self, side: slice) -> bool:
        return bool((self.health[side] <= 0).all())

    def _hit(self, unit: int) -> None:
        self.health[unit] = max(self.health[unit] - 1, 0)

    def _distance(self, i: int, others: slice) -> np.ndarray:
        return np.abs(self.at[others] - self.at[i]).max(-1)

    def _march(self, enemy: int) -> None:
        living = np.flatnonzero(self.health[: self.n_agents] > 0)
        if not len(living):
            return
        far = self._distance(enemy, slice(self.n_agents))[living]
        prey = living[far.argmin()]
        if far.min() <= RANGE and self.rng.random() < 0.8:
            self._hit(prey)
        else:
            self.at[enemy] += np.sign(self.at[prey] - self.at[enemy])

    def _available(self, i: int) -> list[int]:
        if self.health[i] <= 0:
            return [1] + [0] * (self.n_actions - 1)
        there = self.at[i] + MOVES
        moves = ((there >= 0) & (there < [WIDTH, HEIGHT])).all(-1)
        targets = (self._distance(i, slice(self.n_agents, None)) <= RANGE) & (
            self.health[self.n_agents :] > 0
        )
        return [0, 1, *moves.astype(int), *targets.astype(int)]

    def _seen_by(self, i: int) -> np.ndarray:
        if self.health[i] <= 0:
            return np.zeros(3 * len(self.health))
        near = (self._distance(i, slice(None)) <= 2 * RANGE) & (self.health > 0)
        seen = np.concatenate([(self.at - self.at[i]) / WIDTH, self.health[:, None] / HEALTH], -1)
        return (seen * near[:, None]).ravel()

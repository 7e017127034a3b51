"""Evaluation of games on the host."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import Array

from ..algorithms.base import Algorithm
from ..config.settings import Settings
from ..envs.host.arena import Alone, Arena
from ..envs.host.faults import Fault, refuse_too_many
from ..envs.host.match import Hosted
from ..envs.host.watched import Halted, never
from ..types import Clock, View
from .episodes import LIMIT, EndlessEpisode, Episodes, warn
from .play import decide

HOSTED_AT_ONCE = 16  # games played side by side
# steps of one episode, or seconds without the end of any, after which the user is warned
MANY = 5_000
LONG = 120.0


class HostEvaluator:
    """`Evaluator` for games on the host: each game plays its share of the episodes, one by one."""

    def __init__(
        self,
        env: Hosted,
        algorithms: dict[str, Algorithm],
        episodes: int,
        greedy: bool,
        workers: int,
        settings: Settings,
        alone: Alone | None = None,
        say: Callable[[str], None] = warn,
    ):
        self.env = env
        self.algorithms = algorithms
        self.episodes = episodes
        self.greedy = greedy
        self.games = 1 if alone else min(episodes, HOSTED_AT_ONCE)
        self.workers = workers
        self.settings = settings
        self.alone = alone
        self.say = say
        self.arenas: dict[int, Arena] = {}  # by seed; holds at most one
        self.faults: list[Fault] = []  # of all evaluations
        self.warned = False  # whether the user was warned of an endless episode
        self._decide = jax.jit(partial(_decide, algorithms, greedy), static_argnums=0)

    def __call__(
        self, learners: dict[str, Any], seed: int, clock: Clock, halted: Callable[[], bool] = never
    ) -> Episodes:
        """Play all episodes; equal seeds give equal games if the environment honours seeds.

        `halted` is asked at every step whether to stop."""
        if seed not in self.arenas:
            self.close()
            self.arenas[seed] = Arena(
                self.env.stateless,
                self.games,
                seed ^ 0xE7A1,
                self.workers,
                self.settings.patience,
                halted,
                self.alone,
            )
        self.arenas[seed].halted = halted
        rounds = -(-self.episodes // self.games)
        share = np.full(self.games, rounds) - (
            np.arange(self.games) >= self.episodes - (rounds - 1) * self.games
        )
        rows = self._play(self.arenas[seed], learners, seed, clock, share, halted)
        return jax.tree.map(lambda row: row.reshape(-1, *row.shape[2:])[: self.episodes], rows)

    def close(self) -> None:
        """End the games."""
        while self.arenas:
            self.arenas.popitem()[1].close()

    def _play(
        self,
        arena: Arena,
        learners: dict[str, Any],
        seed: int,
        clock: Clock,
        share: np.ndarray,
        halted: Callable[[], bool],
    ) -> Episodes:
        """Play `share [B]` episodes of each game, as rows `[K,B,…]`; play a broken one again."""
        before = len(self.faults)
        arena.renew()
        self.faults += arena.step()
        acting = {
            team: algorithm.acting(learners[team]) for team, algorithm in self.algorithms.items()
        }
        leaves, tree = jax.tree.flatten(jax.device_put(acting))
        carries = {
            team: algorithm.carry(acting[team], self.games)
            for team, algorithm in self.algorithms.items()
        }
        rows = _Rows(self.env, share)
        step = 0
        self._look(arena, rows.done, rows.going, rows.returns)
        self.since = time.monotonic()
        while rows.going.any():
            views = jax.tree.map(np.array, arena.views())
            actions, carries = self._decide(
                tree, leaves, clock, views, carries, np.uint32(seed), step
            )
            self.faults += arena.step(jax.device_get(actions))
            step = step + 1
            refuse_too_many(self.faults[before:], self.settings.tolerance, "an evaluation")
            if halted():
                raise Halted
            rows.earn(arena)
            self._look(arena, rows.row, rows.going, rows.returns)
            self._wait_for(*rows.end(arena))
        return Episodes(rows.returns, rows.lengths, rows.metrics)

    def _wait_for(self, taken: np.ndarray, progress: bool) -> None:
        """Warn when an episode takes many steps, and give up after too many.

        `taken [B]` are the steps of episodes under way, `progress` whether one has just ended."""
        if progress:
            self.since = time.monotonic()
        game = int(taken.argmax())
        longest = self.settings.longest
        if taken[game] >= longest:
            raise EndlessEpisode(self.env.name, game, longest, LIMIT)
        if (
            not self.warned
            and (taken[game] >= MANY or time.monotonic() - self.since > LONG)
            and taken[game]
        ):
            self.warned = True
            self.say(
                f"game {game} of {self.env.name} has not ended its episode after"
                f" {taken[game]:,} steps of an evaluation, which gives up after {longest:,}"
                f" (--longest); --env.limit <steps> cuts episodes"
            )

    def _look(
        self, arena: Arena, row: np.ndarray, going: np.ndarray, rows: dict[str, np.ndarray]
    ) -> None:
        """Hook for a camera, called at every instant.

        `row [B]` is each game's current episode, `going [B]` whether the game still plays."""


class _Rows:
    """Episodes of an evaluation as they are played, `[K,B,…]`: the k-th of each game."""

    def __init__(self, env: Hosted, share: np.ndarray):
        shape = (share.max(), len(share))
        self.share = share  # [B] episodes that each game plays
        self.done = np.zeros(len(share), int)  # [B] episodes that each game has finished
        self.returns = {team: np.zeros((*shape, spec.n)) for team, spec in env.teams.items()}
        self.lengths = np.zeros(shape, int)
        self.metrics = {name: np.zeros(shape) for name in env.metrics}

    @property
    def going(self) -> np.ndarray:
        """`[B]` whether a game has episodes left."""
        return self.done < self.share

    @property
    def row(self) -> np.ndarray:
        """`[B]` the episode that each game is at."""
        return np.minimum(self.done, self.share - 1)

    @property
    def _at(self) -> tuple[np.ndarray, range]:
        return self.row, range(len(self.share))

    def earn(self, arena: Arena) -> None:
        """Add a step to the episodes under way; an episode that has just opened starts from
        zero."""
        at = self._at
        anew = arena.arrays["first"] & self.going
        self.lengths[at] = np.where(anew, 0, self.lengths[at] + self.going)
        for team, view in arena.views().items():
            earned = self.returns[team][at] + np.asarray(view.reward) * self.going[:, None]
            self.returns[team][at] = np.where(anew[:, None], 0.0, earned)

    def end(self, arena: Arena) -> tuple[np.ndarray, bool]:
        """Close the episodes that ended, with their metrics.

        Returns the steps `[B]` of episodes still under way, and whether any ended."""
        at = self._at
        ended = arena.arrays["over"] & self.going
        for name, values in arena.metrics().items():
            self.metrics[name][at] = np.where(ended, values, self.metrics[name][at])
        taken = np.where(self.going & ~ended, self.lengths[at], 0)
        self.done += ended
        return taken, bool(ended.any())


def _decide(
    algorithms: dict[str, Algorithm],
    greedy: bool,
    tree: Any,
    leaves: list[Array],
    clock: Clock,
    views: dict[str, View],
    carries: dict[str, Any],
    seed: Any,
    step: Any,
) -> tuple[dict[str, Array], dict[str, Any]]:
    """Every team's actions and carries at a step."""
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 0xE7A1), step)
    keys = list(jax.random.split(key, len(algorithms)))
    return decide(
        algorithms, jax.tree.unflatten(tree, leaves), clock, greedy, views, carries, keys
    )[:2]

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
from ..envs.host.faults import Fault, TooManyFaults
from ..envs.host.match import Hosted
from ..envs.host.watched import Halted, never
from ..types import Clock, View
from .episodes import LIMIT, Endless, Episodes, aloud
from .play import decide

HOSTED_AT_ONCE = 16  # games played side by side
# steps of one episode, or seconds in which none ends, after which the user is warned
MANY = 5_000
LONG = 120.0


class HostEvaluator:
    """`Evaluator` for a game on the host: every game plays its part of the episodes, one after the
    other."""

    def __init__(
        self,
        env: Hosted,
        algorithms: dict[str, Algorithm],
        episodes: int,
        greedy: bool,
        workers: int,
        settings: Settings,
        alone: Alone | None = None,
        say: Callable[[str], None] = aloud,
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
        self.arenas: dict[int, Arena] = {}  # the one in use, by its seed
        self.faults: list[Fault] = []  # in all evaluations
        self.warned = False  # that an episode does not end
        self._decide = jax.jit(partial(_decide, algorithms, greedy), static_argnums=0)

    def __call__(
        self, learners: dict[str, Any], seed: int, clock: Clock, halted: Callable[[], bool] = never
    ) -> Episodes:
        """`seed` alone decides the games, as far as the environment honours seeds; `halted` is
        asked at every step."""
        if seed not in self.arenas:
            self.close()
            how = (self.workers, self.settings.patience, halted, self.alone)
            self.arenas[seed] = Arena(self.env.stateless, self.games, seed ^ 0xE7A1, *how)
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
        """Rows `[K,B,…]` of each game's first `share [B]` episodes; one that breaks is played
        again."""
        before = len(self.faults)
        all_games = range(self.games)
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
        rows = {
            team: np.zeros((share.max(), self.games, spec.n))
            for team, spec in self.env.teams.items()
        }
        lengths = np.zeros((share.max(), self.games), int)
        metrics = {name: np.zeros((share.max(), self.games)) for name in self.env.metrics}
        done = np.zeros(self.games, int)
        step = 0
        self._look(arena, done, done < share, rows)
        self.since = time.monotonic()
        while (done < share).any():
            views = jax.tree.map(np.array, arena.views())
            actions, carries = self._decide(
                tree, leaves, clock, views, carries, np.uint32(seed), step
            )
            self.faults += arena.step(jax.device_get(actions))
            broke = len(self.faults) - before
            step = step + 1
            if broke > self.settings.tolerance:
                count = (
                    f"the environment broke {broke} times in an evaluation, more than its tolerance"
                )
                raise TooManyFaults(
                    f"{count} of {self.settings.tolerance}; the last time", self.faults[-1]
                )
            if halted():
                raise Halted
            going = done < share
            at = np.minimum(done, share - 1), all_games  # the row of the episode under way
            anew = arena.arrays["first"] & going
            lengths[at] = np.where(anew, 0, lengths[at] + going)
            for team, view in arena.views().items():
                earned = rows[team][at] + np.asarray(view.reward) * going[:, None]
                rows[team][at] = np.where(anew[:, None], 0.0, earned)
            self._look(arena, at[0], going, rows)
            ended = arena.arrays["over"] & going
            for name, said in arena.metrics().items():
                metrics[name][at] = np.where(ended, said, metrics[name][at])
            self._wait_for(np.where(going & ~ended, lengths[at], 0), bool(ended.any()))
            done += ended
        return Episodes(rows, lengths, metrics)

    def _wait_for(self, taken: np.ndarray, progress: bool) -> None:
        """Tell of an episode that has not ended after many steps `[B]`, and give up after too
        many."""
        if progress:
            self.since = time.monotonic()
        game = int(taken.argmax())
        longest = self.settings.longest
        if taken[game] >= longest:
            raise Endless(self.env.name, game, longest, LIMIT)
        if (
            not self.warned
            and (taken[game] >= MANY or time.monotonic() - self.since > LONG)
            and taken[game]
        ):
            self.warned = True
            self.say(
                f"game {game} of {self.env.name} has not ended its episode after"
                f" {taken[game]:,} steps of an"
                f" evaluation, which gives up after {longest:,} (--longest); --env.limit"
                f" <steps> cuts episodes"
            )

    def _look(
        self, arena: Arena, row: np.ndarray, going: np.ndarray, rows: dict[str, np.ndarray]
    ) -> None:
        """Called at every instant, for whoever films: the row `[B]` each game is at, and whether it
        is still played."""


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

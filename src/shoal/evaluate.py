"""Evaluation: whole episodes on games and keys of their own, never counted as training."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .algorithms.base import Algorithm
from .collect import Play, play_step
from .envs.base import Env
from .types import Clock

AT_ONCE = 1024  # games played side by side


class Episodes(NamedTuple):
    """One row per episode."""

    returns: dict[str, np.ndarray]  # team -> [episodes,N] undiscounted, each agent's own
    length: np.ndarray  # [episodes]

    def score(self) -> dict[str, float]:
        """Mean return of one agent, by team."""
        return {team: float(rows.mean()) for team, rows in self.returns.items()}


class Tally(NamedTuple):
    """Episodes under way."""

    play: Play
    key: Array
    returns: dict[str, Array]  # [B,N]
    length: Array  # [B]
    over: Array  # [B] bool


class Evaluator:
    """Plays each game's first episode to its end; compiled once for a number of episodes."""

    def __init__(self, env: Env, algorithms: dict[str, Algorithm], episodes: int, greedy: bool):
        self.env, self.algorithms, self.episodes, self.greedy = env, algorithms, episodes, greedy
        self.games = min(episodes, AT_ONCE)
        self._run = jax.jit(self._play)

    def __call__(self, learners: dict, seed: int, clock: Clock) -> Episodes:
        """`seed` alone decides the games: equal seeds face equal games."""
        rounds = -(-self.episodes // self.games)
        keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), 0xE7A1), rounds)
        played = [jax.device_get(self._run(learners, key, clock)) for key in keys]
        returns, length = jax.tree.map(lambda *rows: np.concatenate(rows)[: self.episodes], *played)
        return Episodes(returns, length)

    def _play(self, learners: dict, key: Array, clock: Clock) -> tuple[dict[str, Array], Array]:
        key, key_reset = jax.random.split(key)
        game, views = self.env.reset(key_reset, self.games)
        carries = {team: algorithm.carry(learners[team], self.games) for team, algorithm in self.algorithms.items()}
        nothing = {team: jnp.zeros_like(view.reward) for team, view in views.items()}
        start = Tally(
            Play(game, views, carries), key, nothing, jnp.zeros(self.games, jnp.int32), jnp.zeros(self.games, bool)
        )
        end = jax.lax.while_loop(lambda tally: ~tally.over.all(), partial(self._step, learners, clock), start)
        return end.returns, end.length

    def _step(self, learners: dict, clock: Clock, tally: Tally) -> Tally:
        key, *keys = jax.random.split(tally.key, 2 + len(self.algorithms))
        play, _ = play_step(self.env, self.algorithms, learners, clock, self.greedy, tally.play, keys)
        first = next(iter(play.views.values())).first
        over = tally.over | first  # the step that reopens a game shows that its episode had ended before
        going = ~over
        returns = {team: tally.returns[team] + view.reward * going[:, None] for team, view in play.views.items()}
        return Tally(play, key, returns, tally.length + going, over)

"""Evaluation: whole episodes on games and keys of their own, never counted as training."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .algorithms.base import Algorithm
from .collect import Play, decide, play_step
from .config import Settings
from .envs.arena import Alone, Arena
from .envs.base import Env
from .envs.host import Fault, Hosted, TooManyFaults
from .envs.watched import Halted, never
from .types import Clock, ShoalError

AT_ONCE = 1024  # games played side by side
HOSTED_AT_ONCE = 16  # the same on the host
MANY, LONG = 5_000, 120.0  # steps of one episode, or seconds in which none ends, after which that is told
DEFAULT = Settings()


class Episodes(NamedTuple):
    """One row per episode."""

    returns: dict[str, np.ndarray]  # team -> [episodes,N] undiscounted, each agent's own
    length: np.ndarray  # [episodes]

    def score(self) -> dict[str, float]:
        """Mean return of one agent, by team."""
        return {team: float(rows.mean()) for team, rows in self.returns.items()}


class Endless(ShoalError):
    """An episode that is longer than an evaluation waits for."""

    exit_code = 1

    def __init__(self, env: str, game: int, longest: int, limit: str):
        super().__init__(
            f"an evaluation was given up: game {game} of {env} has not ended its episode after {longest:,} steps;"
            f" {limit}, or let evaluations wait for longer with --longest"
        )


LIMIT = "cut its episodes with --env.limit <steps>"  # of a game on the host


def aloud(sentence: str) -> None:
    """To whoever reads the terminal."""
    print(sentence, file=sys.stderr, flush=True)


class Tally(NamedTuple):
    """Episodes under way."""

    play: Play
    key: Array
    returns: dict[str, Array]  # [B,N]
    length: Array  # [B]
    over: Array  # [B] bool


class Evaluator:
    """Plays each game's first episode to its end; compiled once for a number of episodes."""

    def __init__(
        self,
        env: Env,
        algorithms: dict[str, Algorithm],
        episodes: int,
        greedy: bool,
        longest: int = Settings.longest,
    ):
        self.env, self.algorithms, self.episodes, self.greedy = env, algorithms, episodes, greedy
        self.games, self.longest = min(episodes, AT_ONCE), longest
        self.faults: list[Fault] = []  # there never are any
        self._run, self._opened, self._stepped = jax.jit(self._play), jax.jit(self._open), jax.jit(self._step)

    def __call__(self, learners: dict, seed: int, clock: Clock, halted: Callable[[], bool] = never) -> Episodes:
        """`seed` alone decides the games: equal seeds face equal games. It is too short to be halted."""
        played = []
        for key in self._keys(seed):
            returns, length, over = jax.device_get(self._run(learners, key, clock))
            self._ended(over)
            played.append((returns, length))
        returns, length = jax.tree.map(lambda *rows: np.concatenate(rows)[: self.episodes], *played)
        return Episodes(returns, length)

    def instants(self, learners: dict, seed: int, clock: Clock) -> Iterator[tuple[Tally, dict[str, Array]]]:
        """The first of the same games one instant after the other, each with the actions that led there."""
        tally, actions = self._opened(learners, self._keys(seed)[0]), {}
        while not tally.over.all():
            yield tally, actions
            if tally.length.max() > self.longest:
                self._ended(jax.device_get(tally.over))
            tally, actions = self._stepped(learners, clock, tally)

    def close(self) -> None:
        """Nothing is held."""

    def _ended(self, over: np.ndarray) -> None:
        """Refuse a round of games of which one has not come to its end."""
        if not over.all():
            name = getattr(self.env, "name", type(self.env).__name__)
            raise Endless(name, int(np.argmin(over)), self.longest, "give the game a limit")

    def _keys(self, seed: int) -> Array:
        """One for each time that all games are played."""
        rounds = -(-self.episodes // self.games)
        return jax.random.split(jax.random.fold_in(jax.random.key(seed), 0xE7A1), rounds)

    def _play(self, learners: dict, key: Array, clock: Clock) -> tuple[dict[str, Array], Array, Array]:
        end = jax.lax.while_loop(
            lambda tally: ~tally.over.all() & (tally.length.max() <= self.longest),
            lambda tally: self._step(learners, clock, tally)[0],
            self._open(learners, key),
        )
        return end.returns, end.length, end.over

    def _open(self, learners: dict, key: Array) -> Tally:
        key, key_reset = jax.random.split(key)
        game, views = self.env.reset(key_reset, self.games)
        carries = {team: algorithm.carry(learners[team], self.games) for team, algorithm in self.algorithms.items()}
        nothing = {team: jnp.zeros_like(view.reward) for team, view in views.items()}
        return Tally(
            Play(game, views, carries), key, nothing, jnp.zeros(self.games, jnp.int32), jnp.zeros(self.games, bool)
        )

    def _step(self, learners: dict, clock: Clock, tally: Tally) -> tuple[Tally, dict[str, Array]]:
        key, *keys = jax.random.split(tally.key, 2 + len(self.algorithms))
        play, (_, actions, _) = play_step(self.env, self.algorithms, learners, clock, self.greedy, tally.play, keys)
        first = next(iter(play.views.values())).first
        over = tally.over | first  # the step that reopens a game shows that its episode had ended before
        going = ~over
        returns = {team: tally.returns[team] + view.reward * going[:, None] for team, view in play.views.items()}
        return Tally(play, key, returns, tally.length + going, over), actions


class HostEvaluator:
    """The same for a game on the host: every game plays its share of the episodes, one after the other."""

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
        self.env, self.algorithms, self.episodes, self.greedy = env, algorithms, episodes, greedy
        self.games = 1 if alone else min(episodes, HOSTED_AT_ONCE)
        self.workers, self.settings, self.alone, self.say = workers, settings, alone, say
        self.arenas: dict[int, Arena] = {}  # the one in use, by its seed
        self.faults: list[Fault] = []  # in all evaluations
        self.warned = False  # that an episode does not end
        self._decide = jax.jit(partial(_decide, algorithms, greedy), static_argnums=0)

    def __call__(self, learners: dict, seed: int, clock: Clock, halted: Callable[[], bool] = never) -> Episodes:
        """`seed` alone decides the games, as far as the environment honours seeds; `halted` is asked at every step."""
        if seed not in self.arenas:
            self.close()
            how = (self.workers, self.settings.patience, halted, self.alone)
            self.arenas[seed] = Arena(self.env.stateless, self.games, seed ^ 0xE7A1, *how)
        self.arenas[seed].halted = halted
        rounds = -(-self.episodes // self.games)
        share = np.full(self.games, rounds) - (np.arange(self.games) >= self.episodes - (rounds - 1) * self.games)
        rows = self._play(self.arenas[seed], learners, seed, clock, share, halted)
        returns, length = jax.tree.map(lambda row: row.reshape(-1, *row.shape[2:])[: self.episodes], rows)
        return Episodes(returns, length)

    def close(self) -> None:
        """End the games."""
        while self.arenas:
            self.arenas.popitem()[1].close()

    def _play(
        self, arena: Arena, learners: dict, seed: int, clock: Clock, share: np.ndarray, halted: Callable[[], bool]
    ) -> tuple[dict, np.ndarray]:
        """Rows `[K,B,…]` of each game's first `share [B]` episodes; one that breaks is played again."""
        before, all_games = len(self.faults), range(self.games)
        arena.renew()
        self.faults += arena.step()
        acting = {team: algorithm.acting(learners[team]) for team, algorithm in self.algorithms.items()}
        leaves, tree = jax.tree.flatten(jax.device_put(acting))
        carries = {team: algorithm.carry(acting[team], self.games) for team, algorithm in self.algorithms.items()}
        rows = {team: np.zeros((share.max(), self.games, spec.n)) for team, spec in self.env.teams.items()}
        lengths, done, step = np.zeros((share.max(), self.games), int), np.zeros(self.games, int), 0
        self._look(arena, done, done < share, rows)
        self.since = time.monotonic()
        while (done < share).any():
            views = jax.tree.map(np.array, arena.views())
            actions, carries = self._decide(tree, leaves, clock, views, carries, np.uint32(seed), step)
            self.faults += arena.step(jax.device_get(actions))
            broke, step = len(self.faults) - before, step + 1
            if broke > self.settings.tolerance:
                count = f"the environment broke {broke} times in an evaluation, more than its tolerance"
                raise TooManyFaults(f"{count} of {self.settings.tolerance}; the last time", self.faults[-1])
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
            self._wait_for(np.where(going & ~ended, lengths[at], 0), bool(ended.any()))
            done += ended
        return rows, lengths

    def _wait_for(self, taken: np.ndarray, progress: bool) -> None:
        """Tell of an episode that has not ended after many steps `[B]`, and give up after too many."""
        if progress:
            self.since = time.monotonic()
        game, longest = int(taken.argmax()), self.settings.longest
        if taken[game] >= longest:
            raise Endless(self.env.name, game, longest, LIMIT)
        if not self.warned and (taken[game] >= MANY or time.monotonic() - self.since > LONG) and taken[game]:
            self.warned = True
            self.say(
                f"game {game} of {self.env.name} has not ended its episode after {taken[game]:,} steps of an"
                f" evaluation, which gives up after {longest:,} (--longest); --env.limit <steps> cuts episodes"
            )

    def _look(self, arena: Arena, row: np.ndarray, going: np.ndarray, rows: dict[str, np.ndarray]) -> None:
        """Called at every instant, for whoever films: the row `[B]` each game is at, and whether it is still played."""


def _decide(
    algorithms: dict,
    greedy: bool,
    tree: Any,
    leaves: list,
    clock: Clock,
    views: dict,
    carries: dict,
    seed: Any,
    step: Any,
) -> tuple[dict, dict]:
    key = jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), 0xE7A1), step)
    keys = list(jax.random.split(key, len(algorithms)))
    return decide(algorithms, jax.tree.unflatten(tree, leaves), clock, greedy, views, carries, keys)[:2]


def evaluator(
    env: Any,
    algorithms: dict[str, Algorithm],
    episodes: int,
    greedy: bool,
    workers: int = 0,
    settings: Settings = DEFAULT,
    alone: Alone | None = None,
    say: Callable[[str], None] = aloud,
) -> Evaluator | HostEvaluator:
    """For a game of either kind."""
    if isinstance(env, Hosted):
        return HostEvaluator(env, algorithms, episodes, greedy, workers, settings, alone, say)
    return Evaluator(env, algorithms, episodes, greedy, settings.longest)

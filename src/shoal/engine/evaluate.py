"""Evaluation: whole episodes with games and random keys of their own, not counted as training."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..algorithms.base import Algorithm
from ..config.settings import Settings
from ..envs.game import Env, measure
from ..envs.host.arena import Alone
from ..envs.host.faults import Fault
from ..envs.host.match import Hosted
from ..envs.host.watched import never
from ..envs.metrics import refuse_nonsense
from ..types import Clock
from .episodes import DEFAULT, EndlessEpisode, Episodes, warn
from .host_evaluate import HostEvaluator
from .play import Play, play_step
from .waiting import in_thread

AT_ONCE = 1024  # games played side by side


class Tally(NamedTuple):
    """Evaluation episodes under way."""

    play: Play
    key: Array
    returns: dict[str, Array]  # [B,N]
    length: Array  # [B]
    over: Array  # [B] bool
    metrics: dict[str, Array]  # [B] by metric: set once the episode is over


class Evaluator:
    """Plays the first episode of each game to its end; compiled once per number of episodes."""

    def __init__(
        self,
        env: Env,
        algorithms: dict[str, Algorithm],
        episodes: int,
        greedy: bool,
        longest: int = Settings.longest,
    ):
        self.env = env
        self.algorithms = algorithms
        self.episodes = episodes
        self.greedy = greedy
        self.games = min(episodes, AT_ONCE)
        self.longest = longest
        self.faults: list[Fault] = []  # always empty: compiled games cannot break

    def __call__(
        self, learners: dict[str, Any], seed: int, clock: Clock, halted: Callable[[], bool] = never
    ) -> Episodes:
        """Play all episodes; equal seeds give equal games. `halted` says whether to stop."""
        played: list[Episodes] = []
        for key in self._keys(seed):
            end = in_thread(self._rows, learners, key, clock, halted=halted)
            self._ended(end[-1])
            played.append(Episodes(*end[:-1]))
        rows = jax.tree.map(lambda *rows: np.concatenate(rows)[: self.episodes], *played)
        refuse_nonsense(rows.metrics, self._name)
        return rows

    def _rows(self, learners: dict[str, Any], key: Array, clock: Clock) -> Any:
        """A round of games, on the host."""
        return jax.device_get(self._run(learners, key, clock))

    def instants(
        self, learners: dict[str, Any], seed: int, clock: Clock
    ) -> Iterator[tuple[Tally, dict[str, Array]]]:
        """Play the first round of games instant by instant; yield each tally and the actions before
        it."""
        tally = self._opened(learners, self._keys(seed)[0])
        actions: dict[str, Array] = {}
        while not tally.over.all():
            yield tally, actions
            if tally.length.max() > self.longest:
                self._ended(jax.device_get(tally.over))
            tally, actions = self._stepped(learners, clock, tally)

    def compile_instants(self, learners: dict[str, Any], seed: int, clock: Clock) -> Tally:
        """Compile what `instants` calls, for arguments like these; the shapes of a tally."""
        key = self._keys(seed)[0]
        tally = jax.eval_shape(self._open, learners, key)
        self._opened = self._opened.lower(learners, key).compile()
        self._stepped = self._stepped.lower(learners, clock, tally).compile()
        return tally

    @cached_property
    def _run(self) -> Any:
        return jax.jit(self._play)

    @cached_property
    def _opened(self) -> Any:
        return jax.jit(self._open)

    @cached_property
    def _stepped(self) -> Any:
        return jax.jit(self._step)

    def close(self) -> None:
        """Do nothing: there are no processes."""

    @property
    def _name(self) -> str:
        return getattr(self.env, "name", type(self.env).__name__)

    def _ended(self, over: np.ndarray) -> None:
        """Refuse a round in which a game did not end."""
        if not over.all():
            raise EndlessEpisode(
                self._name, int(np.argmin(over)), self.longest, "give the game a limit"
            )

    def _keys(self, seed: int) -> Array:
        """A key for each round of games."""
        rounds = -(-self.episodes // self.games)
        return jax.random.split(jax.random.fold_in(jax.random.key(seed), 0xE7A1), rounds)

    def _play(
        self, learners: dict[str, Any], key: Array, clock: Clock
    ) -> tuple[dict[str, Array], Array, dict[str, Array], Array]:
        end = jax.lax.while_loop(
            lambda tally: ~tally.over.all() & (tally.length.max() <= self.longest),
            lambda tally: self._step(learners, clock, tally)[0],
            self._open(learners, key),
        )
        return end.returns, end.length, end.metrics, end.over

    def _open(self, learners: dict[str, Any], key: Array) -> Tally:
        key, key_reset = jax.random.split(key)
        game, views = self.env.reset(key_reset, self.games)
        carries = {
            team: algorithm.carry(learners[team], self.games)
            for team, algorithm in self.algorithms.items()
        }
        nothing = {team: jnp.zeros_like(view.reward) for team, view in views.items()}
        return Tally(
            Play(game, views, carries),
            key,
            nothing,
            jnp.zeros(self.games, jnp.int32),
            jnp.zeros(self.games, bool),
            jax.tree.map(jnp.zeros_like, measure(self.env, game, self.games)),
        )

    def _step(
        self, learners: dict[str, Any], clock: Clock, tally: Tally
    ) -> tuple[Tally, dict[str, Array]]:
        key, *keys = jax.random.split(tally.key, 2 + len(self.algorithms))
        play, (_, actions, _) = play_step(
            self.env, self.algorithms, learners, clock, self.greedy, tally.play, keys
        )
        first = next(iter(play.views.values())).first
        # an opening view means that the episode before has ended
        over = tally.over | first
        going = ~over
        returns = {
            team: tally.returns[team] + view.reward * going[:, None]
            for team, view in play.views.items()
        }
        ended = first & ~tally.over
        measured = measure(self.env, tally.play.game, self.games)
        metrics = {
            name: jnp.where(ended, value, tally.metrics[name]) for name, value in measured.items()
        }
        return Tally(play, key, returns, tally.length + going, over, metrics), actions


def evaluator(
    env: Env | Hosted,
    algorithms: dict[str, Algorithm],
    episodes: int,
    greedy: bool,
    workers: int = 0,
    settings: Settings = DEFAULT,
    alone: Alone | None = None,
    say: Callable[[str], None] = warn,
) -> Evaluator | HostEvaluator:
    """The evaluator for a game, compiled or on the host."""
    if isinstance(env, Hosted):
        return HostEvaluator(env, algorithms, episodes, greedy, workers, settings, alone, say)
    return Evaluator(env, algorithms, episodes, greedy, settings.longest)

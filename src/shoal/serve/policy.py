"""A player's policies, compiled for a few numbers of games, and what they remember of each."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..errors import ShoalError
from ..store.observations import Seen, by_agent
from ..store.player import Player
from ..types import Spec, View

STEP = 8  # each size is so many times the one before
TRIES = 3  # times that each size is tried; the quickest counts


class Memory:
    """What the policies remember of some games."""

    def __init__(self) -> None:
        self.games = 0  # of the newest request
        self.carries: dict[str, Any] = {}  # by team, of numpy arrays
        self.first: dict[str, np.ndarray] = {}  # by team: which games open an episode

    def expect(self, games: int, reset: Any) -> None:
        """Refuse another number of games than before, and a reset of games that are not there."""
        if reset is True:
            self.games = games
            return
        rows = [] if reset is False else reset
        if not isinstance(rows, list) or not all(
            type(row) is int and 0 <= row < self.games for row in rows
        ):
            raise ShoalError(
                f"reset must be true, or a list of numbers of games below {self.games}"
            )
        if games and self.games and games != self.games:
            raise ShoalError(
                f"these are observations of {games} games, and the session has {self.games}:"
                " reset it first"
            )
        self.games = games or self.games

    def begin(self, reset: Any) -> None:
        """Begin new episodes in all games, or in those listed."""
        if reset is True:
            self.carries = {}
            self.first = {}
        elif reset:
            for first in self.first.values():
                first[reset] = True


class Asked(NamedTuple):
    """What one request wants decided."""

    seen: Seen
    memory: Memory | None = None
    reset: Any = False  # which games begin anew before


class Policies:
    """All teams of a player; a batch is padded to one of a few sizes, each compiled once."""

    def __init__(self, player: Player, greedy: bool, largest: int, seed: int = 0):
        self.player = player
        self.greedy = greedy
        self.sizes = sizes(largest)
        self.calls = 0
        self._seed = seed
        self._acts: dict[str, Any] = {}
        self._fresh: dict[str, Any] = {}  # by team: the carry of one game
        self._seconds: dict[int, float] = {}  # by size, for all teams
        for team, spec in player.teams.items():
            if set(spec.agents) & set(player.agents):
                learner = jax.device_put(player.learners[team])
                self._acts[team] = partial(jax.jit(self._decide, static_argnums=0), team, learner)
                fresh = player.algorithms[team].carry(learner, 1)
                self._fresh[team] = jax.tree.map(np.asarray, jax.device_get(fresh))

    @property
    def remembers(self) -> bool:
        """Whether what is decided depends on earlier steps."""
        return any(leaf.size for leaf in jax.tree.leaves(self._fresh))

    def warm(self) -> None:
        """Compile everything, so that no request waits for it, and see how long each size takes."""
        for size in self.sizes:
            self._pass(size)  # compiles
            self._seconds[size] = min(self._pass(size) for _ in range(TRIES))

    def seconds(self, games: int) -> float:
        """How long a decision in so many games takes; infinite if that was not tried."""
        return self._seconds.get(self._size(games), math.inf)

    def _pass(self, size: int) -> float:
        """Decide for all teams in games where nothing is seen; return the seconds it took."""
        start = time.perf_counter()
        for team in self._acts:
            self._run(team, _nothing(self.player.teams[team], size), [(None, size)])
        return time.perf_counter() - start

    def _size(self, games: int) -> int:
        return next(size for size in self.sizes if size >= games)

    def decide(self, batch: Sequence[Asked]) -> list[dict[str, Any]]:
        """Actions by agent for each request; memories move on when all is decided."""
        found: list[dict[str, Any]] = [{} for _ in batch]
        after: list[tuple[Memory, str, Any, int]] = []
        for one in batch:
            if one.memory is not None:
                one.memory.begin(one.reset)
        for team, spec in self.player.teams.items():
            mine = [i for i, one in enumerate(batch) if team in one.seen.views]
            if not mine:
                continue
            views = [self._opened(team, batch[i]) for i in mine]
            rows = [(batch[i].memory, batch[i].seen.games) for i in mine]
            action, carry = self._run(team, _joined(views), rows)
            start = 0
            for i in mine:
                seen = batch[i].seen
                part = slice(start, start + seen.games)
                start += seen.games
                found[i] |= by_agent(spec, action[part], seen.rows[team], seen.batched)
                memory = batch[i].memory
                if memory is not None:
                    kept = jax.tree.map(lambda leaf, at=part: leaf[at], carry)
                    after.append((memory, team, kept, seen.games))
        for memory, team, carry, games in after:
            memory.carries[team] = carry
            memory.first[team] = np.zeros(games, bool)
        return found

    def _opened(self, team: str, one: Asked) -> View:
        """A request's view, with the games that open an episode."""
        first = None if one.memory is None else one.memory.first.get(team)
        opens: Any = np.ones(one.seen.games, bool) if first is None else first
        return one.seen.views[team]._replace(first=opens)

    def _run(
        self, team: str, view: View, rows: Sequence[tuple[Memory | None, int]]
    ) -> tuple[np.ndarray, Any]:
        """A team's actions `[B,N,…]` and its next carry."""
        games = len(view.first)
        size = self._size(games)
        fresh = self._fresh[team]
        carries = [
            memory.carries[team]
            if memory is not None and team in memory.carries
            else jax.tree.map(lambda leaf, count=count: np.repeat(leaf, count, 0), fresh)
            for memory, count in rows
        ]
        padded = partial(_padded, size=size)
        self.calls += 1
        number = np.uint32(self.calls)
        action, carry = self._acts[team](
            number, jax.tree.map(padded, view), jax.tree.map(padded, _joined(carries))
        )
        return np.asarray(action)[:games], jax.tree.map(np.asarray, carry)

    def _decide(self, team: str, learner: Any, number: Any, view: View, carry: Any) -> Any:
        key = jax.random.fold_in(jax.random.key(self._seed), number)
        clock = self.player.clock
        view = jax.tree.map(jnp.asarray, view)
        decision = self.player.algorithms[team].act(learner, key, view, carry, clock, self.greedy)
        return decision.action, decision.carry


def sizes(largest: int) -> tuple[int, ...]:
    """The numbers of games that programs are compiled for: 1, 8, 64, …, `largest`."""
    found = [1]
    while found[-1] * STEP < largest:
        found.append(found[-1] * STEP)
    return (*found, largest) if largest > 1 else (1,)


def _joined(trees: Sequence[Any]) -> Any:
    """Trees of arrays, one after another along the axis of games."""
    if len(trees) == 1:
        return trees[0]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *trees)


def _padded(leaf: Any, size: int) -> np.ndarray:
    """An array with its first row repeated until there are `size` rows."""
    lacking = size - len(leaf)
    return leaf if not lacking else np.concatenate([leaf, np.repeat(leaf[:1], lacking, 0)])


def _nothing(spec: Spec, games: int) -> View:
    """A view in which everything is 0, legal and alive."""
    obs: Any = np.zeros((games, spec.n, spec.obs), np.float32)
    state: Any = np.zeros((games, spec.state), np.float32)
    legal: Any = np.ones((games, spec.n, spec.action.size), bool)
    alive: Any = np.ones((games, spec.n), bool)
    first: Any = np.ones(games, bool)
    reward: Any = np.zeros((games, spec.n), np.float32)
    return View(obs, state, legal, alive, first, reward, reward + 1)

"""Memories: what a team learns from.

Written by hand because flashbax puts the axis of games before time, scatters its writes, and
depends on flax and tensorstore. Here a write is one slice, a draw is one gather, and both keep the
axes of the view stream.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..types import Spec, View, Window
from .trees import at


class Rollout(NamedTuple):
    """On-policy memory: only the window just played."""

    carry: Any  # [B,…] the critic's carry at the window's first instant
    window: Any = ()  # a Window between `remember` and `learn`


class Instant(NamedTuple):
    """One instant in a replay: its view and the actions that led to it."""

    view: View  # every field [B,…]
    action: Array  # [B,N] or [B,N,A]
    rivals: Array  # [B,M]
    record: Any = ()  # [B,…] what the policy wants back of its decision, where it is kept


class Drawn(NamedTuple):
    """Windows drawn from a replay, side by side along `B`."""

    window: Window
    before: Array  # [1,B,N] or [1,B,N,A] the action that led to each window's first instant
    # [B,M] the other teams' actions at each window's last instant, where asked for
    rivals_after: Array
    slot: Array  # [B] slot of each window's first instant
    game: Array  # [B] game of each window
    importance: Array  # [B] at most 1; all 1 when drawn uniformly
    largest: Array | float = 1.0  # the importance weight that all others were divided by


class Replay(NamedTuple):
    """Off-policy memory: a ring buffer of instants, which stores no observation twice.

    Slots hold successive instants, and the next instant replaces the oldest. The instants before
    and after that slot are not successive, so no window crosses it.
    """

    ring: Instant  # every leaf [C,B,…]
    priority: Array  # [C,B] of the window that begins at each slot; [0,B] if draws are uniform
    head: Array  # [] int32 slot of the next instant
    size: Array  # [] int32 slots in use

    @jax.named_scope("remember")
    def put(self, window: Window) -> Replay:
        """Add instants 1…T of a window; its instant 0 was added with the window before.

        The very first instant of a run is not stored.
        """
        block = instants(window)
        if not jax.tree.leaves(self.ring.record):
            block = block._replace(record=())
        fitting = jax.tree.map(
            lambda new, old: new if old.size else old[: len(new)], block, self.ring
        )
        ring = jax.tree.map(
            lambda old, new: jax.lax.dynamic_update_slice_in_dim(old, new, self.head, 0),
            self.ring,
            fitting,
        )
        slots = ring.action.shape[0]
        steps = block.action.shape[0]
        priority = self.priority
        if priority.size:  # new windows get the highest priority so far
            most = priority.max()
            fresh = jnp.full((steps, priority.shape[1]), jnp.where(most > 0, most, 1.0))
            priority = jax.lax.dynamic_update_slice_in_dim(priority, fresh, self.head, 0)
        return Replay(
            ring, priority, (self.head + steps) % slots, jnp.minimum(self.size + steps, slots)
        )

    def windows(self, length: int) -> Array:
        """Number of windows of `length` instants in each game."""
        return jnp.maximum(self.size - length + 1, 0)

    def ready(self, length: int, episodes: bool) -> Array:
        """Whether there is a window of `length` instants to draw; with `episodes`, an opening."""
        if not episodes:
            return self.windows(length) > 0
        return (self.ring.view.first & self._begins(length)[:, None]).any()

    def _begins(self, length: int) -> Array:
        """`[C]` bool: slots at which a window of `length` instants begins."""
        slots = self.ring.action.shape[0]
        age = (jnp.arange(slots) - self.head + self.size) % slots
        return age < self.windows(length)

    @jax.named_scope("draw")
    def draw(
        self,
        key: Array,
        count: int,
        steps: int,
        rivals_after: bool,
        beta: float | Array = 1.0,
        episodes: bool = False,
    ) -> Drawn:
        """Draw `count` windows of `steps` transitions.

        `rivals_after` adds the other teams' actions at each window's last instant. With `episodes`,
        windows begin where an episode opens.
        """
        slots, games = self.ring.action.shape[:2]
        length = steps + 1 + rivals_after
        if self.priority.size:
            chance = self.priority * self.ring.view.first if episodes else self.priority
            slot, game, importance = self._by_chance(key, count, length, beta, chance)
            largest = importance.max()
            importance = importance / largest
        elif episodes:
            chance = self.ring.view.first.astype(jnp.float32)
            slot, game, importance = self._by_chance(key, count, length, 0.0, chance)
            largest = jnp.float32(1.0)
        else:
            # the remainder of 32 random bits is close enough to uniform
            start, game = jax.random.bits(key, (2, count))
            start = (start % self.windows(length)).astype(int)
            game = (game % games).astype(int)
            slot = (self.head - self.size + start) % slots
            importance = jnp.ones(count)
            largest = jnp.float32(1.0)
        where = (slot + jnp.arange(length)[:, None]) % slots
        found = at(self.ring, (where, game))
        view = at(found.view, np.s_[: steps + 1])
        action, record, rivals = at(
            (found.action, found.record, found.rivals), np.s_[1 : steps + 1]
        )
        window = Window(view, action, record, (), (), rivals)
        return Drawn(window, found.action[:1], found.rivals[-1], slot, game, importance, largest)

    def _by_chance(
        self, key: Array, count: int, length: int, beta: float | Array, chance: Array
    ) -> tuple[Array, Array, Array]:
        """Draw in proportion to `chance [C,B]`, stratified (Schaul et al. 2016, §3.4).

        Returns slots, games and importance weights.
        """
        games = chance.shape[1]
        rows = jnp.where(self._begins(length), chance.sum(1), 0.0)
        below = jnp.cumsum(rows)
        draw = (jnp.arange(count) + jax.random.uniform(key, (count,))) / count * below[-1]
        # rounding must not select a window past the last one
        draw = jnp.minimum(draw, jnp.nextafter(below[-1], 0.0))
        slot = jnp.searchsorted(below, draw, side="right")
        inside = jnp.cumsum(chance[slot], axis=1)
        rest = draw - (below[slot] - rows[slot])
        game = jnp.minimum((inside <= rest[:, None]).sum(1), games - 1)
        rarity = below[-1] / (chance[slot, game] * self.windows(length) * games)
        return slot, game, rarity**beta

    def rank(self, drawn: Drawn, surprise: Array) -> Replay:
        """Set the priorities of drawn windows."""
        if not self.priority.size:
            return self
        return self._replace(priority=self.priority.at[drawn.slot, drawn.game].set(surprise + 1e-6))


def instants(window: Window) -> Instant:
    """Instants 1…T of a window, each with the actions that led to it."""
    return Instant(at(window.view, np.s_[1:]), window.action, window.rivals, window.record)


def empty(
    spec: Spec, games: int, slots: int, state: bool, rivals: bool, prioritised: bool
) -> Replay:
    """An empty replay of `slots` instants per game.

    `state` and `rivals` say whether to store the state and the other teams' actions.
    """
    agents = (slots, games, spec.n)
    size = spec.action.size
    view = View(
        obs=jnp.zeros((*agents, spec.obs), jnp.uint8 if spec.pixels else jnp.float32),
        state=jnp.zeros((slots, games, spec.state if state else 0)),
        legal=jnp.zeros((*agents, size), bool),
        alive=jnp.zeros(agents, bool),
        first=jnp.zeros((slots, games), bool),
        reward=jnp.zeros(agents),
        discount=jnp.zeros(agents),
    )
    action = jnp.zeros((*agents, *spec.action.shape), spec.action.dtype)
    ring = Instant(view, action, jnp.zeros((slots, games, spec.rivals if rivals else 0)))
    return Replay(ring, jnp.zeros((slots if prioritised else 0, games)), jnp.int32(0), jnp.int32(0))

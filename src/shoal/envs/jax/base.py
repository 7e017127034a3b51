"""Many games of somebody's JAX package side by side, keeping the promises of the stream
(`types.py`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ...errors import ShoalError
from ...types import Spec, View

CLOCKS = ("step", "step_count")  # what packages call the steps taken in an episode
ALONE = "agent"  # the team, where a package names none


class Seen(NamedTuple):
    """What a package tells of one game at one instant, each part but the last by team."""

    obs: dict[str, Array]  # [N,F]
    legal: dict[str, Array]  # [N,A] bool
    alive: dict[str, Array]  # [N] bool
    reward: dict[str, Array]  # [N]
    discount: dict[str, Array]  # [N]
    state: Array  # [S]
    over: Array  # [] bool: the episode has ended with this instant


class JaxState(NamedTuple):
    """The state of several games."""

    world: Any  # the package's own state, every leaf [B,…]
    over: Array  # [B] bool: the episode ended with the last step


class JaxGame:
    """Base of the three: subclasses set `name`, `teams` and perhaps `limit`, and write the first
    two methods."""

    name: str
    teams: dict[str, Spec]
    # steps after which the package ends an episode without saying that it was the clock
    limit: int | None = None
    metrics: tuple[str, ...] = ()  # names of what `episode_metrics` says

    def open(self, key: Array) -> tuple[Any, Seen]:
        """One game as it opens."""
        raise NotImplementedError

    def move(self, key: Array, world: Any, actions: dict[str, Array]) -> tuple[Any, Seen]:
        """One game after the teams' actions, `[N]` int (Discrete) or `[N,A]` float (Box)."""
        raise NotImplementedError

    def episode_metrics(self, world: Any) -> dict[str, Array]:
        """`[]` by metric: how the one episode that ends with this world went."""
        return {}

    def reset(self, key: Array, games: int) -> tuple[JaxState, dict[str, View]]:
        world, seen = self._open_all(key, games)
        return JaxState(world, seen.over), self._views(seen, jnp.ones(games, bool))

    def step(
        self, key: Array, state: JaxState, actions: dict[str, Array]
    ) -> tuple[JaxState, dict[str, View]]:
        first = state.over
        keys = _keys(key, first.shape[0])
        world, seen = _firm(jax.vmap(self.move)(keys, state.world, actions))
        if self.limit is not None:
            late = (
                seen.over & ~first & (getattr(_clocked(world)[-1], clock_of(world)) >= self.limit)
            )
            seen = jax.lax.cond(
                late.any(), self._timeless, _as_told, late, keys, state.world, actions, seen
            )
        world, seen = jax.lax.cond(first.any(), self._reopen, _as_played, key, first, (world, seen))
        return JaxState(world, seen.over), self._views(seen, first)

    def measure(self, state: JaxState) -> dict[str, Array]:
        """`[B]` by metric."""
        return jax.vmap(self.episode_metrics)(state.world)

    def drawable(self) -> None:
        """Refuse to be drawn if nobody can."""
        from ...render.jax_env import painter

        if painter(self, jax.eval_shape(self.open, jax.random.PRNGKey(0))[0]) is None:
            raise ShoalError(
                f"{self.name} cannot be drawn: neither Shoal nor its package has a"
                f" picture of its states"
            )

    def pictures(
        self, states: Sequence[JaxState], actions: Sequence[Any], game: int
    ) -> Iterator[np.ndarray]:
        """`[H,W,3]` of each instant of an episode of one of the games."""
        from ...render.jax_env import painter

        worlds = [jax.tree.map(lambda leaf: leaf[game], state.world) for state in states]
        paint = painter(self, worlds[0])
        assert paint, "it is drawable"
        return paint(self, worlds)

    def _open_all(self, key: Array, games: int) -> tuple[Any, Seen]:
        return _firm(jax.vmap(self.open)(_keys(key, games)))

    def _reopen(self, key: Array, first: Array, played: tuple[Any, Seen]) -> tuple[Any, Seen]:
        return _where(first, self._open_all(jax.random.fold_in(key, 1), first.shape[0]), played)

    def _timeless(
        self, late: Array, keys: Array, before: Any, actions: dict[str, Array], seen: Seen
    ) -> Seen:
        """Who lives and what is ahead, told as if the clock of late games had not run out."""
        _, free = _firm(jax.vmap(self.move)(keys, _rewound(before), actions))
        alive, discount = _where(late, (free.alive, free.discount), (seen.alive, seen.discount))
        return seen._replace(alive=alive, discount=discount)

    def _views(self, seen: Seen, first: Array) -> dict[str, View]:
        parts = seen._asdict()
        state = parts.pop("state")
        del parts["over"]
        return {
            team: View(
                state=state, first=first, **{part: by_team[team] for part, by_team in parts.items()}
            )
            for team in self.teams
        }

    def _opening(self, obs: dict[str, Array], legal: dict[str, Array], state: Array) -> Seen:
        """What is seen of a game that has just opened."""
        alive = {team: jnp.ones(spec.n, bool) for team, spec in self.teams.items()}
        ones = {team: jnp.ones(spec.n, jnp.float32) for team, spec in self.teams.items()}
        return Seen(
            obs, legal, alive, jax.tree.map(jnp.zeros_like, ones), ones, state, jnp.array(False)
        )


def row(value: Any) -> Array:
    return jnp.ravel(value).astype(jnp.float32)


def pad(row: Array, width: int) -> Array:
    return jnp.pad(row, (0, width - row.shape[0]))


def _keys(key: Array, games: int) -> Array:
    """A key for every game, as plain numbers: packages keep keys in their states, and checkpoints
    keep numbers."""
    return jax.random.key_data(jax.random.split(key, games))


def _firm(tree: Any) -> Any:
    """Leaves without weak types, which differ between a package's reset and its step."""
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.asarray(x).dtype), tree)


def _where(chosen: Array, new: Any, old: Any) -> Any:
    """Leaves `[B,…]` of `new` for the chosen games `[B]`, of `old` for the others."""
    return jax.tree.map(
        lambda a, b: jnp.where(chosen.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, old
    )


def _clocked(world: Any) -> list[Any]:
    """The state that has a clock, behind those it is wrapped in; nothing, if there is none."""
    if any(hasattr(world, clock) for clock in CLOCKS):
        return [world]
    inner = _clocked(world.state) if hasattr(world, "state") else []
    return [world, *inner] if inner else []


def clock_of(world: Any) -> str:
    """What that state calls its clock; "" if there is none."""
    holders = _clocked(world)
    return next((clock for clock in CLOCKS if hasattr(holders[-1], clock)), "") if holders else ""


def _rewound(world: Any) -> Any:
    """The world with its clock set to 0."""
    *wraps, inner = _clocked(world)
    clock = clock_of(world)
    inner = dataclasses.replace(inner, **{clock: jnp.zeros_like(getattr(inner, clock))})
    for wrap in reversed(wraps):
        inner = dataclasses.replace(wrap, state=inner)
    return inner


def _as_told(late: Array, keys: Array, before: Any, actions: dict[str, Array], seen: Seen) -> Seen:
    return seen


def _as_played(key: Array, first: Array, played: tuple[Any, Seen]) -> tuple[Any, Seen]:
    return played

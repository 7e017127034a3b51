"""Plays many games of a JAX package in parallel, as a stream that resets on the next step."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ...errors import ShoalError
from ...render import Scene
from ...types import Spec, View

CLOCKS = ("step", "step_count")  # packages' names for the steps taken in an episode
ALONE = "agent"  # the team's name, where a package has none


class Seen(NamedTuple):
    """What a package returns for one game at one instant; all but the last two are by team."""

    obs: dict[str, Array]  # [N,F]
    legal: dict[str, Array]  # [N,A] bool
    alive: dict[str, Array]  # [N] bool
    reward: dict[str, Array]  # [N]
    discount: dict[str, Array]  # [N]
    state: Array  # [S]
    over: Array  # [] bool: the episode ends with this instant


class JaxState(NamedTuple):
    """The state of several games."""

    world: Any  # the package's own state, every leaf [B,…]
    over: Array  # [B] bool: the episode ended with the last step


class JaxGame:
    """Base of the adapters for JAX packages.

    Subclasses set `name`, `teams` and perhaps `limit`, and define the first two methods.
    """

    name: str
    teams: dict[str, Spec]
    # time limit after which the package reports only `done`, not truncation
    limit: int | None = None
    metrics: tuple[str, ...] = ()  # names of what `episode_metrics` returns

    def open(self, key: Array) -> tuple[Any, Seen]:
        """Open one game."""
        raise NotImplementedError

    def move(self, key: Array, world: Any, actions: dict[str, Array]) -> tuple[Any, Seen]:
        """Advance one game by the teams' actions, `[N]` int (Discrete) or `[N,A]` float (Box)."""
        raise NotImplementedError

    def episode_metrics(self, world: Any) -> dict[str, Array]:
        """`[]` by metric, of the episode that ends with this world."""
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
        """Raise an error if the game cannot be drawn."""
        from ...render.jax_env import painter

        if painter(self, jax.eval_shape(self.open, jax.random.PRNGKey(0))[0]) is None:
            raise ShoalError(
                f"{self.name} cannot be drawn: neither Shoal nor its package has a"
                f" picture of its states"
            )

    def pictures(
        self, states: Sequence[JaxState], actions: Sequence[Any], game: int
    ) -> Iterator[np.ndarray]:
        """Pictures `[H,W,3]` of an episode of one game."""
        from ...render.jax_env import painter

        worlds = _worlds(states, game)
        paint = painter(self, worlds[0])
        assert paint, "it is drawable"
        return paint(self, worlds)

    def scenes(self, states: Sequence[JaxState], actions: Sequence[Any], game: int) -> list[Scene]:
        """The scenes of an episode of one game; none where Shoal does not draw it itself."""
        from ...render.jax_env import teller

        worlds = _worlds(states, game)
        tell = teller(self, worlds[0])
        return tell(self, worlds) if tell else []

    def _open_all(self, key: Array, games: int) -> tuple[Any, Seen]:
        return _firm(jax.vmap(self.open)(_keys(key, games)))

    def _reopen(self, key: Array, first: Array, played: tuple[Any, Seen]) -> tuple[Any, Seen]:
        return _where(first, self._open_all(jax.random.fold_in(key, 1), first.shape[0]), played)

    def _timeless(
        self, late: Array, keys: Array, before: Any, actions: dict[str, Array], seen: Seen
    ) -> Seen:
        """For `late` games, replace `alive` and `discount` by those without the time limit.

        They come from the same step with the clock set back.
        """
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
        """The first instant of a game."""
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
    """A key for every game as plain numbers, since packages keep keys in states that are saved."""
    return jax.random.key_data(jax.random.split(key, games))


def _firm(tree: Any) -> Any:
    """Remove weak types, which differ between a package's reset and step."""
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.asarray(x).dtype), tree)


def _where(chosen: Array, new: Any, old: Any) -> Any:
    """Select leaves `[B,…]` of `new` where `chosen [B]`, else of `old`."""
    return jax.tree.map(
        lambda a, b: jnp.where(chosen.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, old
    )


def _clocked(world: Any) -> list[Any]:
    """Wrapped states down to the one with a clock, outermost first; empty if there is none."""
    if any(hasattr(world, clock) for clock in CLOCKS):
        return [world]
    inner = _clocked(world.state) if hasattr(world, "state") else []
    return [world, *inner] if inner else []


def clock_of(world: Any) -> str:
    """The name of a world's clock; "" if there is none."""
    holders = _clocked(world)
    return next((clock for clock in CLOCKS if hasattr(holders[-1], clock)), "") if holders else ""


def _rewound(world: Any) -> Any:
    """Set the world's clock to 0."""
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


def _worlds(states: Sequence[JaxState], game: int) -> list[Any]:
    """The worlds of one game."""
    return [jax.tree.map(lambda leaf: leaf[game], state.world) for state in states]

"""The interface of compiled games, and the base class of native ones.

A native game is batched by itself. Inside it the games axis `B` is the *last* axis of every array:
selecting between worlds then broadcasts, and physics runs over contiguous memory. `Game` turns its
arrays into the views of `types.py`. It also owns the clock, the time limit and the reset on the
next step, so that a scenario is four functions of its world.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from numbers import Integral
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..errors import ShoalError
from ..render import Scene
from ..types import Spec, View, line_up
from .metrics import refuse_undeclared

BLOCK = 64  # games whose observations are laid out together
MOST = 1_000_000  # largest number of anything that a game counts
CROWD = 1000  # most agents, landmarks and the like of a game


class Env(Protocol):
    """Any game that the compiled engine can play."""

    name: str
    teams: dict[str, Spec]
    metrics: tuple[str, ...]  # names of what `measure` returns; empty for most games

    def reset(self, key: Array, games: int) -> tuple[Any, dict[str, View]]:
        """Open `games` games."""
        ...

    def step(
        self, key: Array, state: Any, actions: dict[str, Array]
    ) -> tuple[Any, dict[str, View]]:
        """Advance every game by one step; a game that ended in the last step resets instead."""
        ...

    def measure(self, state: Any) -> dict[str, Array]:
        """`[B]` by metric, of the episode that ends with this state."""
        ...


class GameState(NamedTuple):
    world: Any  # every leaf […,B]
    clock: Array  # [B] int32 steps taken in this episode
    over: Array  # [B] bool: the episode ended with the last step


class Game:
    """Base of the native games.

    Subclasses set `name`, `teams` and `limit`, and define the first four methods.
    """

    name: str
    teams: dict[str, Spec]
    limit: int  # steps after which time runs out
    coloured = True  # teams are drawn in Shoal's colours
    metrics: tuple[str, ...] = ()  # names of what `episode_metrics` returns

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Apply `line_up` to `teams` of every subclass."""
        super().__init_subclass__(**kwargs)
        if "episode_metrics" in vars(cls) and not cls.metrics:
            raise ShoalError(
                f"{cls.__name__} says metrics that it does not declare: write metrics = ('won',)"
                f" or as episode_metrics names them"
            )
        named = vars(cls).get("teams")
        if isinstance(named, cached_property | property):
            tell = named.func if isinstance(named, cached_property) else named.fget
            assert tell, "a property is read"
            lined = cached_property(lambda game: game.line_up(tell(game)))
        elif isinstance(named, dict):
            lined = cached_property(lambda game: game.line_up(named))
        else:
            return
        lined.__set_name__(cls, "teams")
        cls.teams = lined  # type: ignore[assignment]

    def start(self, key: Array, games: int) -> Any:
        """The opening world of `games` games."""
        raise NotImplementedError

    def advance(self, key: Array, world: Any, actions: dict[str, Array]) -> Any:
        """The world after the teams' actions, `[N,B]` int (Discrete), `[N,P,B]` int
        (MultiDiscrete) or `[N,A,B]` float (Box)."""
        raise NotImplementedError

    def observe(self, world: Any) -> dict[str, Array]:
        """Observations of each team, `[N,F,B]`, padded to the team's widest agent."""
        raise NotImplementedError

    def reward(self, world: Any) -> dict[str, Array]:
        """Rewards of each team for the step that led to this world, `[N,B]`."""
        raise NotImplementedError

    def terminal(self, world: Any, clock: Array) -> Array | None:
        """`[B]` True where the task has ended, `clock [B]` steps into the episode.

        None if no task ever ends.
        """
        return None

    def alive(self, world: Any) -> dict[str, Array] | None:
        """`[N,B]` by team; None if agents never die.

        `advance` must ignore the actions of dead agents.
        """
        return None

    def legal(self, world: Any) -> dict[str, Array]:
        """`[N,A,1 or B]` by team; by default all but the padding of an agent's actions is legal."""
        masks = {}
        for team, spec in self.teams.items():
            sizes = jnp.asarray(spec.action_sizes or (spec.action.size,) * spec.n)
            masks[team] = (jnp.arange(spec.action.size) < sizes[:, None])[..., None]
        return masks

    def state(self, world: Any, obs: dict[str, Array]) -> Array:
        """The global state `[B,S]`; by default all `obs [B,N,F]` joined, without padding."""
        parts = []
        for team, spec in self.teams.items():
            if all(size == spec.obs for size in spec.obs_sizes):
                parts.append(obs[team].reshape(obs[team].shape[0], -1))
            else:
                parts += [obs[team][:, i, :size] for i, size in enumerate(spec.obs_sizes)]
        return jnp.concatenate(parts, axis=1)

    def episode_metrics(self, world: Any) -> dict[str, Array]:
        """`[B]` by metric, of the episode that ends with this world."""
        return {}

    def scene(self, world: Any, actions: dict[str, np.ndarray]) -> Scene:
        """Describe a picture of one game.

        `world` has no axis `B`. `actions`, `[N]` or `[N,A]` by team, led to it; none at the
        opening.
        """
        raise NotImplementedError

    def drawable(self) -> None:
        """Raise an error if the game defines no scene."""
        if type(self).scene is Game.scene:
            raise ShoalError(
                f"{self.name} cannot be drawn: give it a scene, as docs/adding-a-game.md shows"
            )

    def pictures(
        self, states: Sequence[GameState], actions: Sequence[dict[str, np.ndarray]], game: int
    ) -> Iterator:
        """Pictures `[H,W,3]` of an episode of one game; `actions` led to each state."""
        from ..render.draw import draw

        return draw(self.scenes(states, actions, game), self.teams)

    def scenes(
        self, states: Sequence[GameState], actions: Sequence[dict[str, np.ndarray]], game: int
    ) -> list[Scene]:
        """The scenes of an episode of one game; `actions` led to each state."""
        worlds = [
            jax.tree.map(lambda leaf: np.asarray(leaf)[..., game], state.world) for state in states
        ]
        did = [{team: np.asarray(action)[game] for team, action in one.items()} for one in actions]
        return [self.scene(world, one) for world, one in zip(worlds, did, strict=True)]

    def line_up(self, teams: dict[str, Spec]) -> dict[str, Spec]:
        """Fill in the fields of each team's spec that depend on all teams."""
        return line_up(teams, joined=type(self).state is Game.state)

    def reset(self, key: Array, games: int) -> tuple[GameState, dict[str, View]]:
        world = self.start(key, games)
        state = GameState(world, jnp.zeros(games, jnp.int32), jnp.zeros(games, bool))
        return state, self._views(world, jnp.ones(games, bool), jnp.zeros(games, bool))

    def step(
        self, key: Array, state: GameState, actions: dict[str, Array]
    ) -> tuple[GameState, dict[str, View]]:
        first = state.over
        inward = {team: jnp.moveaxis(action, 0, -1) for team, action in actions.items()}
        world = self.advance(key, state.world, inward)
        world = jax.lax.cond(first.any(), self._reopen, _as_it_is, key, first, world)
        clock = jnp.where(first, 0, state.clock + 1)
        ended = self.terminal(world, clock)
        ended = jnp.zeros_like(first) if ended is None else ended & ~first
        over = ended | (clock >= self.limit)
        return GameState(world, clock, over), self._views(world, first, ended)

    def measure(self, state: GameState) -> dict[str, Array]:
        """`[B]` by metric."""
        return self.episode_metrics(state.world)

    def _reopen(self, key: Array, first: Array, world: Any) -> Any:
        # A random stream of its own, derived only here: deriving a key costs as much as the physics
        # of a small game.
        fresh = self.start(jax.random.fold_in(key, 1), first.shape[0])
        return jax.tree.map(lambda new, old: jnp.where(first, new, old), fresh, world)

    def _outward(self, world: Any, games: int) -> dict[str, Array]:
        """Observations `[B,N,F]`, laid out in blocks of games.

        Rows a power of two apart would compete for one cache set.
        """
        if games % BLOCK or games == BLOCK:
            return {team: jnp.moveaxis(obs, -1, 0) for team, obs in self.observe(world).items()}
        blocks = jax.tree.map(lambda x: x.reshape(*x.shape[:-1], games // BLOCK, BLOCK), world)
        seen = jax.vmap(self.observe, in_axes=-2)(blocks)
        return {
            team: jnp.moveaxis(obs, -1, 1).reshape(games, *obs.shape[1:-1])
            for team, obs in seen.items()
        }

    def _views(self, world: Any, first: Array, ended: Array) -> dict[str, View]:
        games = first.shape[0]
        rewards = self.reward(world)
        legal = self.legal(world)
        alive = self.alive(world)
        obs = self._outward(world, games)
        state = self.state(world, obs)
        views = {}
        for team, spec in self.teams.items():
            living = jnp.ones((games, spec.n), bool) if alive is None else alive[team].T
            views[team] = View(
                obs=obs[team],
                state=state,
                legal=jnp.broadcast_to(
                    jnp.moveaxis(legal[team], -1, 0), (games, spec.n, spec.action.size)
                ),
                alive=living,
                first=first,
                reward=jnp.where(first, 0.0, rewards[team]).T,
                discount=(living & ~ended[:, None]).astype(jnp.float32),
            )
        return views


def _as_it_is(key: Array, first: Array, world: Any) -> Any:
    return world


def measure(env: Env, state: Any, games: int) -> dict[str, Array]:
    """`[B]` by metric, of the episodes that end with this state.

    Computes nothing for an environment without metrics.
    """
    names = getattr(env, "metrics", ())
    if not names:
        return {}
    said = env.measure(state)
    refuse_undeclared(said, names, env.name)
    for name, values in said.items():
        if jnp.shape(values) != (games,):
            raise ShoalError(
                f"the metric {name!r} of {env.name} has shape {jnp.shape(values)}: let it be one"
                f" number for each game, ({games},)"
            )
    return {name: jnp.asarray(said[name], jnp.float32) for name in names}


def at_least(least: int, most: int = MOST, **options: Any) -> None:
    """Raise an error for an option that is not an integer from `least` to `most`."""
    for option, value in options.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            raise ShoalError(f"{option} must be a whole number of at least {least}, not {value!r}")
        if int(value) > most:
            raise ShoalError(f"{option} must be at most {most:,}, not {value!r}")


def within(low: float, high: float, **options: Any) -> None:
    """Raise an error for an option that is not a number between `low` and `high`."""
    for option, value in options.items():
        if (
            not isinstance(value, int | float)
            or isinstance(value, bool)
            or not low <= value <= high
        ):
            raise ShoalError(
                f"{option} must be a number between {low:g} and {high:g}, not {value!r}"
            )

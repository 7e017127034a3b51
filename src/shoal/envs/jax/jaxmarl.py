"""Adapter for JaxMARL."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ...errors import ShoalError
from ...options import check_names, convert
from ...types import Box, Discrete, Spec, line_up
from ..adapters.teams import side_of
from ..game import Env
from ..metrics import WON, split
from .base import ALONE, JaxGame, Seen, clock_of, pad, row
from .options import (
    differing_sizes,
    errors_in_a_sentence,
    installed,
    known_id,
    look_up,
    parameters,
    refuse_crowds,
    space_of,
    widest,
)

SMAX = ("SMAX", "HeuristicEnemySMAX", "LearnedPolicyEnemySMAX")
ALLY = "ally"
ENEMY = "enemy"
TABLES = (  # option, games that have it, module and table of its named values
    ("scenario", SMAX, "smax.smax_env", "MAP_NAME_TO_SCENARIO"),
    ("layout", ("overcooked",), "overcooked", "overcooked_layouts"),
    ("layout", ("overcooked_v2",), "overcooked_v2.layouts", "overcooked_v2_layouts"),
)


class Jaxmarl(JaxGame):
    """A game of JaxMARL. Teams come from agents' names: `ally_0` and `ally_1` are team `ally`."""

    coloured = True  # teams are drawn in Shoal's colours

    def __init__(self, name: str, env: Any, one_team: bool = False) -> None:
        self.name = f"jaxmarl:{name}"
        self.env = env
        obs, world = jax.eval_shape(env.reset, jax.random.PRNGKey(0))
        if not isinstance(obs, dict) or any(
            getattr(obs.get(agent), "shape", None) is None for agent in env.agents
        ):
            raise ShoalError(
                f"{self.name} gives no observations by agent and cannot be played: choose another"
                " game"
            )
        self.lists_legal = self._lister()
        self.lineup: dict[str, list[str]] = {}
        for agent in env.agents:
            self.lineup.setdefault(ALONE if one_team else side_of(str(agent)), []).append(agent)
        self.sizes = {agent: math.prod(obs[agent].shape) for agent in env.agents}
        self.spaces = {agent: space_of(env.action_space(agent), self.name) for agent in env.agents}
        self.own_state = "world_state" in obs or hasattr(env, "get_world_state")
        width = jax.eval_shape(self._state, obs, world).shape[0]
        self.teams = line_up(
            {team: self._spec(agents, width) for team, agents in self.lineup.items()},
            not self.own_state,
        )
        if hasattr(env, "max_steps") and clock_of(world):
            self.limit = int(env.max_steps)
        self.metrics = self._battle() if name in SMAX else ()

    def _battle(self) -> tuple[str, ...]:
        """Teams that may win: the allies, or both sides where both are teams."""
        if len(self.env.agents) == self.env.num_allies:
            return (WON,)
        both = set(self.teams) == {ALLY, ENEMY}
        return tuple(f"{team}/{WON}" for team in self.teams) if both else ()

    def episode_metrics(self, world: Any) -> dict[str, Array]:
        """A side wins when all its enemies are dead and not all of its own, as in the package."""
        while hasattr(world, "state"):  # inside, where the package plays the enemy
            world = world.state
        ally = world.unit_alive[: self.env.num_allies].any()
        enemy = world.unit_alive[self.env.num_allies :].any()
        won = {ALLY: ally & ~enemy, ENEMY: enemy & ~ally}
        return {name: won[split(name)[0] or ALLY] for name in self.metrics}

    def _spec(self, agents: list[str], state: int) -> Spec:
        sizes = [self.sizes[agent] for agent in agents]
        spaces = [self.spaces[agent] for agent in agents]
        names = tuple(str(agent) for agent in agents)
        acts = [space.size for space in spaces]
        action = widest(spaces, self.name)
        return Spec(
            names,
            max(sizes),
            state,
            action,
            obs_sizes=differing_sizes(sizes),
            action_sizes=differing_sizes(acts),
        )

    def _lister(self) -> Callable[[Any], dict[str, Array]] | None:
        """The function that lists legal actions, or None.

        The base class has such a method too, but does not implement it.
        """
        base = installed("jaxmarl").environments.MultiAgentEnv.get_avail_actions
        if type(self.env).get_avail_actions is not base:
            return self.env.get_avail_actions
        return getattr(self.env, "get_legal_moves", None)

    def open(self, key: Array) -> tuple[Any, Seen]:
        obs, world = self.env.reset(key)
        return world, self._opening(self._obs(obs), self._legal(world), self._state(obs, world))

    def move(self, key: Array, world: Any, actions: dict[str, Array]) -> tuple[Any, Seen]:
        told = {agent: self._act(agent, actions[team][i]) for team, i, agent in self._everyone()}
        obs, world, reward, done, _ = self.env.step_env(key, world, told)
        over = jnp.asarray(done["__all__"], bool)
        alive = self._by_team({agent: ~jnp.asarray(done[agent], bool) for agent in self.env.agents})
        discount = {team: (living & ~over).astype(jnp.float32) for team, living in alive.items()}
        rewards = self._by_team(
            {agent: jnp.asarray(reward[agent], jnp.float32) for agent in self.env.agents}
        )
        state = self._state(obs, world)
        return world, Seen(
            self._obs(obs), self._legal(world), alive, rewards, discount, state, over
        )

    def _everyone(self) -> Iterable[tuple[str, int, str]]:
        return (
            (team, i, agent)
            for team, agents in self.lineup.items()
            for i, agent in enumerate(agents)
        )

    def _by_team(self, values: dict[str, Array]) -> dict[str, Array]:
        return {
            team: jnp.stack([values[agent] for agent in agents])
            for team, agents in self.lineup.items()
        }

    def _act(self, agent: str, action: Array) -> Array:
        space = self.spaces[agent]
        if not isinstance(space, Box):
            return action
        return action[: space.size].clip(jnp.asarray(space.low), jnp.asarray(space.high))

    def _obs(self, obs: dict[str, Array]) -> dict[str, Array]:
        widths = {agent: self.teams[team].obs for team, _, agent in self._everyone()}
        return self._by_team(
            {agent: pad(row(obs[agent]), width) for agent, width in widths.items()}
        )

    def _legal(self, world: Any) -> dict[str, Array]:
        """Legal actions: not padding, and on the package's own list if it has one."""
        listed = self.lists_legal(world) if self.lists_legal else {}
        rows = {}
        for team, _, agent in self._everyone():
            space = self.spaces[agent]
            row = jnp.ones(space.size, bool)
            if isinstance(space, Discrete) and agent in listed:
                row = jnp.asarray(listed[agent], bool)
            rows[agent] = pad(row, self.teams[team].action.size)
        return self._by_team(rows)

    def _state(self, obs: dict[str, Array], world: Any) -> Array:
        if "world_state" in obs:
            return row(obs["world_state"])
        if self.own_state:
            return jnp.concatenate(
                [row(part) for part in jax.tree.leaves(self.env.get_world_state(world))]
            )
        return jnp.concatenate([row(obs[agent]) for _, _, agent in self._everyone()])


def make_jaxmarl(name: str, options: dict[str, Any]) -> Env:
    """Create `jaxmarl:<name>`.

    Options are those of the game's class, with maps and layouts by name, and `one_team`.
    """
    package = installed("jaxmarl")
    known_id("jaxmarl", name, package.registered_envs)
    options = dict(options)
    one_team = convert(bool, options.pop("one_team", False), "one_team")
    with errors_in_a_sentence(f"jaxmarl:{name}", options):
        known = {"one_team", *parameters(package.make(name))} if options else set()
        check_names(options, sorted(known), f"jaxmarl:{name}")
        refuse_crowds(options)
        return Jaxmarl(name, package.make(name, **_by_name(name, options)), one_team)


def _by_name(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Look up SMAX's maps and Overcooked's layouts, which the classes take as objects."""
    named = dict(options)
    for option, games, module, table in TABLES:
        if name in games and isinstance(options.get(option), str):
            known = getattr(importlib.import_module(f"jaxmarl.environments.{module}"), table)
            named[option] = look_up(option, options[option], known)
    return named

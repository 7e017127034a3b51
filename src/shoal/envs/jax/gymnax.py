"""Adapter for gymnax."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ...options import check_names
from ...types import Box, Spec
from ..game import Env
from .base import ALONE, JaxGame, Seen, row
from .options import errors_in_a_sentence, installed, known_id, parameters, space_of


class Gymnax(JaxGame):
    """A game of gymnax: a team of one."""

    def __init__(self, name: str, env: Any, params: Any) -> None:
        self.name = f"gymnax:{name}"
        self.env = env
        self.params = params
        obs, _ = jax.eval_shape(env.reset_env, jax.random.PRNGKey(0), params)
        space = env.action_space(params)
        size = math.prod(obs.shape)
        self.shape = space.shape
        action = space_of(space, self.name)
        self.teams = {ALONE: Spec((f"{ALONE}_0",), size, size, action, joined=True)}

    def open(self, key: Array) -> tuple[Any, Seen]:
        obs, world = self.env.reset_env(key, self.params)
        return world, self._opening({ALONE: row(obs)[None]}, self._legal(), row(obs))

    def move(self, key: Array, world: Any, actions: dict[str, Array]) -> tuple[Any, Seen]:
        action = actions[ALONE][0]
        space = self.teams[ALONE].action
        if isinstance(space, Box):
            action = action.clip(jnp.asarray(space.low), jnp.asarray(space.high)).reshape(
                self.shape
            )
        obs, world, reward, ended, _ = self.env.step_env(key, world, action, self.params)
        seen = self._opening({ALONE: row(obs)[None]}, self._legal(), row(obs))
        return world, seen._replace(
            reward={ALONE: jnp.asarray(reward, jnp.float32)[None]},
            discount={ALONE: 1.0 - jnp.asarray(ended, jnp.float32)[None]},
            over=ended | self.env.is_truncated(world, self.params),
        )

    def _legal(self) -> dict[str, Array]:
        return {ALONE: jnp.ones((1, self.teams[ALONE].action.size), bool)}


def make_gymnax(name: str, options: dict[str, Any]) -> Env:
    """Create `gymnax:<id>`; options are the game's parameters, such as `max_steps_in_episode`."""
    package = installed("gymnax")
    known_id("gymnax", name, package.registered_envs)
    with errors_in_a_sentence(f"gymnax:{name}", options):
        env, params = package.make(name)
        tunable = {field.name for field in dataclasses.fields(params)}
        check_names(options, sorted(tunable | parameters(env)), f"gymnax:{name}")
        made = {option: value for option, value in options.items() if option not in tunable}
        env, params = package.make(name, **made) if made else (env, params)
        tuned = {option: value for option, value in options.items() if option in tunable}
        return Gymnax(name, env, dataclasses.replace(params, **tuned))

"""Adapter for jumanji."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ...errors import ShoalError
from ...options import check_names
from ...types import Box, Discrete, Space, Spec
from ..game import Env
from .base import ALONE, JaxGame, Seen, clock_of, row
from .options import errors_in_a_sentence, installed, known_id, numbers, parameters

# parts of jumanji's observations that are each agent's own
VIEWS = ("agents_view", "searcher_views")
PRODUCT = 10_000  # most actions that the combination of several choices may give


class Jumanji(JaxGame):
    """A game of jumanji: a team of its agents, or of one agent that makes all choices at once."""

    def __init__(self, name: str, env: Any) -> None:
        self.name = f"jumanji:{name}"
        self.env = env
        world, step = jax.eval_shape(env.reset, jax.random.PRNGKey(0))
        self.shape = tuple(env.action_spec.shape)
        agents = getattr(env, "num_agents", None)
        self.together = agents is not None and self.shape[:1] == (agents,)
        self.agents = int(agents or 1) if self.together else 1
        self.choices: tuple[int, ...] = ()
        action = self._action(env.action_spec)
        state, obs = (x.shape[-1] for x in jax.eval_shape(self._read, step.observation))
        names = tuple(f"{ALONE}_{i}" for i in range(self.agents))
        self.teams = {ALONE: Spec(names, obs, state, action, joined=self.agents == 1)}
        if isinstance(getattr(env, "time_limit", None), int) and clock_of(world):
            self.limit = env.time_limit

    def _action(self, spec: Any) -> Space:
        if not hasattr(spec, "num_values"):
            if self.together and len(self.shape) == 2 and jnp.issubdtype(spec.dtype, jnp.floating):
                low, high = (
                    np.broadcast_to(bound, self.shape)[0] for bound in (spec.minimum, spec.maximum)
                )
                return Box(numbers(low), numbers(high))
            raise ShoalError(f"{self.name} has a kind of actions that Shoal does not know: {spec}")
        counts = [int(count) for count in np.ravel(spec.num_values)]
        if self.together:
            if len(set(counts)) > 1:
                raise ShoalError(
                    f"{self.name} has agents with different numbers of actions, {counts}"
                )
            return Discrete(counts[0])
        if math.prod(counts) > PRODUCT:
            raise ShoalError(
                f"{self.name} has {math.prod(counts)} actions, more than the"
                f" {PRODUCT} Shoal will list"
            )
        self.choices = tuple(counts)
        return Discrete(math.prod(counts))

    def open(self, key: Array) -> tuple[Any, Seen]:
        world, step = self.env.reset(key)
        state, obs = self._read(step.observation)
        return world, self._opening({ALONE: obs}, self._legal(step.observation), state)

    def move(self, key: Array, world: Any, actions: dict[str, Array]) -> tuple[Any, Seen]:
        world, step = self.env.step(world, self._told(actions[ALONE]))
        state, obs = self._read(step.observation)
        seen = self._opening({ALONE: obs}, self._legal(step.observation), state)
        return world, seen._replace(
            reward={ALONE: jnp.broadcast_to(step.reward, (self.agents,)).astype(jnp.float32)},
            discount={ALONE: jnp.broadcast_to(step.discount, (self.agents,)).astype(jnp.float32)},
            over=step.last(),
        )

    def _told(self, action: Array) -> Array:
        """Convert actions to what the package expects."""
        space = self.teams[ALONE].action
        if isinstance(space, Box):
            return action.clip(jnp.asarray(space.low), jnp.asarray(space.high))
        if self.together:
            return action
        return jnp.stack(jnp.unravel_index(action[0], self.choices)).reshape(self.shape)

    def _read(self, observation: Any) -> tuple[Array, Array]:
        """The state, which is the whole observation, and each agent's observation.

        An agent observes its own parts and those that all share.
        """
        parts = {
            part: value for part, value in observation._asdict().items() if part != "action_mask"
        }
        own = [
            parts.pop(part).reshape(self.agents, -1)
            for part in VIEWS
            if self.together and part in parts
        ]
        common = jnp.concatenate([jnp.zeros(0), *(row(leaf) for leaf in jax.tree.leaves(parts))])
        seen = jnp.concatenate([*own, jnp.broadcast_to(common, (self.agents, common.shape[0]))], -1)
        return jnp.concatenate([*(view.ravel() for view in own), common]), seen.astype(jnp.float32)

    def _legal(self, observation: Any) -> dict[str, Array]:
        size = (self.agents, self.teams[ALONE].action.size)
        mask = getattr(observation, "action_mask", None)
        return {ALONE: jnp.ones(size, bool) if mask is None else mask.reshape(size)}


def make_jumanji(name: str, options: dict[str, Any]) -> Env:
    """Create `jumanji:<id>`; options are plain arguments of its class, such as `time_limit`."""
    package = installed("jumanji")
    known_id("jumanji", name, package.registered_environments())
    with errors_in_a_sentence(f"jumanji:{name}", options):
        env = package.make(name)
        check_names(options, sorted(parameters(env)), f"jumanji:{name}")
        return Jumanji(name, package.make(name, **options) if options else env)

"""Running statistics of what a team observes and earns, by which its nets read both.

They are part of the learner and of every policy that is saved. A window is read by the statistics
that its actions were chosen by; it is counted after it was learnt from.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..errors import ShoalError
from ..learning.normalise import ReturnNormaliser, nothing_counted
from ..learning.reduce import mean_weights
from ..learning.returns import advantages, learning_weight, pool
from ..types import Spec, View, Window
from .base import Metrics

CLIP = 10.0  # bound of what is read, in deviations
TEAM = (0,)  # owner of the state's statistics


class Statistics(NamedTuple):
    """What a standardiser adds to a learner; fields that are not asked for are empty."""

    obs: Any = ()  # RunningMoments [G,F], by owner of the actors' parameters
    state: Any = ()  # RunningMoments [1,S]
    returns: Any = ()  # ReturnNormaliser, of discounted sums of rewards


class Standardiser:
    """How a team's observations, state and rewards are brought to a common unit."""

    def __init__(
        self,
        spec: Spec,
        owner: tuple[int, ...],
        left_alone: tuple[int, ...],
        obs: bool,
        reward: bool,
        pooling: str,
        gamma: float,
    ):
        if obs and spec.pixels:
            raise ShoalError(
                "observations here are images, which nets scale to [0,1] already: set"
                " normalise_obs to False"
            )
        self.owner = owner
        self.obs = obs
        self.reward = reward
        self.pooling = pooling
        self.gamma = gamma
        sizes = np.array(spec.obs_sizes or (spec.obs,) * spec.n)
        # [N,F] numbers that are read by their statistics: no padding, no places that `near` needs
        self.numbers = np.arange(spec.obs) < sizes[:, None]
        self.numbers[:, list(left_alone)] = False

    def init(self, state: int) -> Statistics:
        """Statistics of nothing; `state` is the state's width, 0 if it needs none of its own."""
        obs = nothing_counted(max(self.owner) + 1, self.numbers.shape[1]) if self.obs else ()
        whole = nothing_counted(1, state) if self.obs and state else ()
        earned = ReturnNormaliser(jnp.zeros(()), jnp.ones(()), jnp.zeros(()))
        return Statistics(obs, whole, earned if self.reward else ())

    def seen(self, statistics: Statistics, view: View) -> View:
        """A view whose observations and state are in deviations from their means.

        Agents that are not there observe 0.
        """
        if not self.obs:
            return view
        down = jnp.clip(statistics.obs.down(view.obs, self.owner), -CLIP, CLIP)
        here = (view.alive | view.cut)[..., None]
        obs = jnp.where(here, jnp.where(self.numbers, down, view.obs), 0.0)
        state = view.state
        if statistics.state:
            down = statistics.state.down(state[..., None, :], TEAM)
            state = jnp.clip(down, -CLIP, CLIP)[..., 0, :]
        return view._replace(obs=obs, state=state)

    def unit(self, statistics: Statistics) -> Array | float:
        """What rewards are divided by: the deviation of returns; 1 while there is none."""
        if not self.reward:
            return 1.0
        returns: ReturnNormaliser = statistics.returns
        return jnp.where(returns.variance > 0, returns.deviation, 1.0)

    def earned(self, statistics: Statistics, view: View) -> View:
        """A view whose rewards are in deviations of returns."""
        if not self.reward:
            return view
        reward = jnp.clip(view.reward / self.unit(statistics), -CLIP, CLIP)
        return view._replace(reward=reward)

    def count(self, statistics: Statistics, window: Window) -> tuple[Statistics, Metrics]:
        """Count a window as it was played: what the living saw when they acted, what they
        earned."""
        metrics: Metrics = {}
        if self.obs:
            counts = window.weight[..., None] * self.numbers
            obs = statistics.obs.update(window.view.obs[:-1], counts, self.owner)
            statistics = statistics._replace(obs=obs)
        if statistics.state:
            acted = window.weight.max(-1)[..., None, None]
            state = window.view.state[:-1, ..., None, :]
            counts = jnp.broadcast_to(acted, state.shape)
            statistics = statistics._replace(state=statistics.state.update(state, counts, TEAM))
        if self.reward:
            weight = mean_weights(learning_weight(window, self.pooling))
            returns = statistics.returns.update(self._returns(window), weight, 1.0)
            statistics = statistics._replace(returns=returns)
            metrics["reward_unit"] = jnp.asarray(self.unit(statistics))
        return statistics, metrics

    def _returns(self, window: Window) -> Array:
        """`[T,B,N]` discounted sums of rewards, to the end of the episode or of the window."""
        reward, discount = pool(window.reward, window.discount, self.pooling)
        nothing = jnp.zeros((reward.shape[0] + 1, *reward.shape[1:]))
        return advantages(reward, discount, nothing, window.valid, self.gamma, 1.0)

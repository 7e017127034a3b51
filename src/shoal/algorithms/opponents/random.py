"""Opponents that do not learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from ...nets.distributions import uniform
from ...nets.layers import Rng
from ...types import Clock, Decision, Discrete, Share, View, Window
from ..base import Algorithm, Metrics


class Fixed(Algorithm):
    """Remembers nothing and never learns."""

    needs_training = False

    def memory(self, learner: Any, share: Share) -> tuple:
        return ()

    def remember(self, memory: Any, window: Window) -> tuple:
        return ()

    def learn(
        self, learner: Any, memory: Any, key: Array, clock: Clock
    ) -> tuple[Any, Any, Metrics]:
        return learner, memory, {}


@dataclass(frozen=True)
class RandomConfig:
    """Nothing to set."""


class Random(Fixed):
    """Plays every legal action with equal probability, or anywhere within the bounds."""

    name = "random"
    Config = RandomConfig

    def init(self, rng: Rng) -> tuple:
        return ()

    def carry(self, learner: Any, games: int) -> tuple:
        return ()

    def act(
        self, learner: Any, key: Array, view: View, carry: Any, clock: Clock, greedy: bool
    ) -> Decision:
        space = self.spec.action
        if isinstance(space, Discrete):
            action = uniform(view.legal).sample(key)
        else:
            shape = (*view.alive.shape, space.size)
            action = jax.random.uniform(
                key, shape, minval=jnp.asarray(space.low), maxval=jnp.asarray(space.high)
            )
        return Decision(action, (), ())

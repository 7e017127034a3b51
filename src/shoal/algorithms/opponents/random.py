"""Random play, the plainest opponent that does not learn."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array

from ...nets.distributions import Factored, uniform
from ...nets.layers import Rng
from ...types import Box, Clock, Decision, Discrete, MultiDiscrete, Share, View, Window
from ..base import Algorithm, CarryT, ConfigT, LearnerT, Metrics

Nothing = tuple[()]


class Fixed(Algorithm[ConfigT, LearnerT, Nothing, CarryT]):
    """Base of opponents without memory or learning."""

    needs_training = False
    spaces = (Discrete, MultiDiscrete, Box)

    def memory(self, learner: LearnerT, share: Share) -> Nothing:
        return ()

    def remember(self, memory: Nothing, window: Window) -> Nothing:
        return ()

    def learn(
        self, learner: LearnerT, memory: Nothing, key: Array, clock: Clock
    ) -> tuple[LearnerT, Nothing, Metrics]:
        return learner, memory, {}


@dataclass(frozen=True)
class RandomConfig:
    """Nothing to set."""


class Random(Fixed[RandomConfig, Nothing, Nothing]):
    """Plays every legal action with equal probability, or anywhere within the bounds."""

    name = "random"
    Config = RandomConfig

    def init(self, rng: Rng) -> Nothing:
        return ()

    def carry(self, learner: Nothing, games: int) -> Nothing:
        return ()

    def act(
        self, learner: Nothing, key: Array, view: View, carry: Nothing, clock: Clock, greedy: bool
    ) -> Decision:
        space = self.spec.action
        if isinstance(space, Discrete):
            action = uniform(view.legal).sample(key)
        elif isinstance(space, MultiDiscrete):
            action = Factored(tuple(map(uniform, space.split(view.legal)))).sample(key)
        else:
            shape = (*view.alive.shape, space.size)
            action = jax.random.uniform(
                key, shape, minval=jnp.asarray(space.low), maxval=jnp.asarray(space.high)
            )
        return Decision(action, (), ())

"""Exploration: schedules over environment steps, and exploring policies."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from ..nets.distributions import Categorical, masked, pick, uniform
from ..nets.heads import best_action


def linear(start: float, end: float, over: float, steps: Array) -> Array:
    """Interpolate from `start` to `end` over the first `over` environment steps."""
    return start + (end - start) * jnp.clip(steps / over, 0.0, 1.0)


def exponential(start: float, end: float, over: float, steps: Array) -> Array:
    """Decay from `start` towards `end` over environment steps.

    The distance to `end` shrinks by a factor of e in every fifth of `over` steps.
    """
    return end + (start - end) * jnp.exp(-5.0 * steps / over)


SCHEDULES = {"linear": linear, "exponential": exponential}


def epsilon_greedy(key: Array, greedy: Array, legal: Array, epsilon: Array) -> Array:
    """The greedy action of each agent, or with probability `epsilon` a random legal action."""
    # below epsilon, number / epsilon is uniform in [0,1) and picks the action
    number = jax.random.uniform(key, greedy.shape)
    anything = uniform(legal).at(jnp.minimum(number / jnp.maximum(epsilon, 1e-9), 1.0 - 1e-7))
    return jnp.where(number < epsilon, anything, greedy)


def boltzmann(values: Array, legal: Array, temperature: Array | float) -> Categorical:
    """Softmax policy over legal actions, of value / temperature; greedy at temperature 0."""
    # relative to the best legal action, so that its logit never falls below ILLEGAL
    behind = values - pick(values, best_action(values, legal))[..., None]
    return masked(behind / jnp.maximum(temperature, 1e-8), legal)


def floored(dist: Categorical, legal: Array, epsilon: Array) -> Categorical:
    """Mix the policy with `epsilon` of the uniform policy over legal actions.

    So no legal action's probability falls to zero.
    """
    even = uniform(legal).log_probs
    return Categorical(
        jnp.logaddexp(dist.log_probs + jnp.log1p(-epsilon), even + jnp.log(epsilon + 1e-30))
    )

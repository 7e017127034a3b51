"""Exploration: schedules in environment steps, and what they act on."""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array

from .nets.heads import Categorical, uniform


def linear(start: float, end: float, over: float, steps: Array) -> Array:
    """From `start` to `end` over the first `over` environment steps."""
    return start + (end - start) * jnp.clip(steps / over, 0.0, 1.0)


def floored(dist: Categorical, legal: Array, epsilon: Array) -> Categorical:
    """The policy with `epsilon` of its mass spread evenly over the legal actions, so that none falls to zero."""
    even = uniform(legal).log_probs
    return Categorical(jnp.logaddexp(dist.log_probs + jnp.log1p(-epsilon), even + jnp.log(epsilon + 1e-30)))

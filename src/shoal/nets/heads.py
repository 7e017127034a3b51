"""Heads by action space: features -> a distribution over actions (`distributions.py`).

With `agent`, a stochastic policy's features and legal actions are of that agent alone: `[…,1,F]`.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from ..types import Box, MultiDiscrete, Space, Spec
from .distributions import Categorical, Deterministic, Factored, Gaussian, Relaxed, masked
from .inputs import own
from .layers import Dense, Rng


def free(legal: Array, space: Box, agent: Array | None = None) -> Array:
    """Dimensions in use whose bounds differ, so that the agent has a choice in them."""
    return legal & own(jnp.asarray(space.high) > jnp.asarray(space.low), agent)


class CategoricalHead(eqx.Module):
    logits: Dense

    def __init__(self, rng: Rng, owner: tuple[int, ...], hidden: int, space: Space):
        self.logits = Dense(rng, owner, hidden, space.size, gain=0.01)

    def __call__(self, features: Array, legal: Array, agent: Array | None = None) -> Categorical:
        return masked(self.logits(features), legal)

    def noise(self, key: Array, legal: Array) -> Array:
        """What `Categorical.sample` draws for policies over these actions."""
        return jax.random.uniform(key, legal.shape[:-1])


class FactoredHead(eqx.Module):
    """A categorical for each part of an action."""

    logits: Dense  # of all parts, joined
    space: MultiDiscrete = eqx.field(static=True)

    def __init__(self, rng: Rng, owner: tuple[int, ...], hidden: int, space: MultiDiscrete):
        self.logits = Dense(rng, owner, hidden, space.size, gain=0.01)
        self.space = space

    def __call__(self, features: Array, legal: Array, agent: Array | None = None) -> Factored:
        parts = zip(self.space.split(self.logits(features)), self.space.split(legal), strict=True)
        return Factored(tuple(masked(logits, allowed) for logits, allowed in parts))

    def noise(self, key: Array, legal: Array) -> Array:
        """What `Factored.sample` draws for policies over these actions."""
        return jax.random.uniform(key, (*legal.shape[:-1], len(self.space.parts)))


class GaussianHead(eqx.Module):
    mean: Dense
    log_std: Array  # [G,A]
    space: Box = eqx.field(static=True)
    squash: bool = eqx.field(static=True)

    def __init__(self, rng: Rng, owner: tuple[int, ...], hidden: int, space: Box, squash: bool):
        self.mean = Dense(rng, owner, hidden, space.size, gain=0.01)
        self.log_std = jnp.full((max(owner) + 1, space.size), -0.5)
        self.space = space
        self.squash = squash

    def __call__(self, features: Array, legal: Array, agent: Array | None = None) -> Gaussian:
        log_std = own(self.log_std[jnp.asarray(self.mean.owner)], agent)
        low = own(jnp.asarray(self.space.low), agent)
        high = own(jnp.asarray(self.space.high), agent)
        used = free(legal, self.space, agent)
        return Gaussian(self.mean(features), log_std, used, low, high, self.squash)

    def noise(self, key: Array, legal: Array) -> Array:
        """What `Gaussian.sample` draws for policies over these dimensions."""
        return jax.random.normal(key, legal.shape)


class DeterministicHead(eqx.Module):
    out: Dense
    space: Space = eqx.field(static=True)

    def __init__(self, rng: Rng, owner: tuple[int, ...], hidden: int, space: Space):
        self.out = Dense(rng, owner, hidden, space.size, gain=0.01)
        self.space = space

    def __call__(self, features: Array, legal: Array) -> Deterministic | Relaxed:
        out = self.out(features)
        if isinstance(self.space, Box):
            return Deterministic(out, free(legal, self.space))
        return Relaxed(out, legal, masked(out, legal).log_probs)


class SquashedHead(eqx.Module):
    """A tanh Gaussian with bounds scaled to [-1,1]; mean and deviation depend on the features."""

    mean: Dense
    log_std: Dense
    space: Box = eqx.field(static=True)

    def __init__(self, rng: Rng, owner: tuple[int, ...], hidden: int, space: Box):
        self.mean = Dense(rng, owner, hidden, space.size, gain=0.01)
        self.log_std = Dense(rng, owner, hidden, space.size, gain=0.01)
        self.space = space

    def __call__(self, features: Array, legal: Array) -> Gaussian:
        log_std = jnp.clip(self.log_std(features), -5.0, 2.0)
        one = jnp.ones(legal.shape[-1])
        return Gaussian(self.mean(features), log_std, free(legal, self.space), -one, one, True)


def policy_head(
    rng: Rng, owner: tuple[int, ...], hidden: int, spec: Spec, squash: bool
) -> GaussianHead | FactoredHead | CategoricalHead:
    """The head for a team's action space."""
    if isinstance(spec.action, Box):
        return GaussianHead(rng, owner, hidden, spec.action, squash)
    if isinstance(spec.action, MultiDiscrete):
        return FactoredHead(rng, owner, hidden, spec.action)
    return CategoricalHead(rng, owner, hidden, spec.action)


def best_action(values: Array, legal: Array) -> Array:
    """Index of each agent's best legal action, `[…,N]`."""
    return jnp.argmax(jnp.where(legal, values, -jnp.inf), -1)


def dueling(out: Array, legal: Array) -> Array:
    """Dueling head: Q values `[…,A]` from advantages and one shared value.

    Wang et al. 2016, eq. 9, with the mean over legal actions. The value's error, common to all
    actions and by far the larger, stays out of the differences between actions.
    """
    size = legal.shape[-1]
    value = out[..., size:]
    gain = out[..., :size]
    mean = (gain * legal).sum(-1, keepdims=True) / jnp.maximum(legal.sum(-1, keepdims=True), 1)
    return value + gain - mean

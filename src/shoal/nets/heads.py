"""Heads by action space: features -> a distribution over an agent's actions.

A distribution draws `raw` values, whose log-probability can be evaluated again, and `action` turns them into what
the game receives.
"""

from __future__ import annotations

from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array
from numpy.polynomial.hermite_e import hermegauss

from ..types import Box, Discrete, Space, Spec
from .layers import Dense, Rng

ILLEGAL = -1e9  # a finite logit, so that a row without any legal action stays finite
NODES, WEIGHTS = hermegauss(16)  # Gauss–Hermite: the mean of f over a standard normal is Σ weight · f(node)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


class Categorical(NamedTuple):
    log_probs: Array  # […,N,A] normalised over the legal actions

    def sample(self, key: Array) -> Array:
        """By one random number per agent instead of one per action."""
        return self.at(jax.random.uniform(key, self.log_probs.shape[:-1]))

    def at(self, number: Array) -> Array:
        """The action at each number in [0,1) of the cumulative distribution."""
        probs = jnp.exp(self.log_probs)
        size = probs.shape[-1]
        below = (probs[..., None, :] * jnp.tri(size)).sum(-1)
        draw = 1.0 - number[..., None]  # in (0,1]: probability 0 is never reached
        return jnp.argmax((below >= draw * below[..., -1:]) & (probs > 0), -1)

    def mode(self) -> Array:
        return jnp.argmax(self.log_probs, -1)

    def action(self, raw: Array) -> Array:
        return raw

    def log_prob(self, raw: Array) -> Array:
        return pick(self.log_probs, raw)

    def entropy(self) -> Array:
        return -(jnp.exp(self.log_probs) * self.log_probs).sum(-1)


class Gaussian(NamedTuple):
    mean: Array  # […,N,A]
    log_std: Array  # broadcastable to it
    used: Array  # […,N,A] bool dimensions that this agent has a choice in
    low: Array  # [A] or [N,A]
    high: Array
    squash: bool | Array

    def sample(self, key: Array) -> Array:
        return self.mean + jnp.exp(self.log_std) * jax.random.normal(key, self.mean.shape)

    def mode(self) -> Array:
        return self.mean

    def action(self, raw: Array) -> Array:
        """Within the bounds: squashed by tanh, or clipped."""
        middle, half = self.high / 2 + self.low / 2, self.high / 2 - self.low / 2
        return jnp.where(self.squash, middle + half * jnp.tanh(raw), jnp.clip(middle + half * raw, self.low, self.high))

    def log_prob(self, raw: Array) -> Array:
        """Of the action a raw draw stands for (before clipping, when clipped)."""
        z = (raw - self.mean) * jnp.exp(-self.log_std)
        density = -0.5 * (z * z + jnp.log(2 * jnp.pi)) - self.log_std - self._log_slope(_log_tanh_slope(raw))
        return (density * self.used).sum(-1)

    def entropy(self) -> Array:
        """Of the Gaussian before clipping; when squashed with the mean of what tanh does to it, by quadrature.

        That mean falls faster than the deviation's logarithm rises: what is squashed has a largest entropy.
        """
        raw = self.mean[..., None] + jnp.exp(self.log_std)[..., None] * NODES
        slope = (_log_tanh_slope(raw) * WEIGHTS).sum(-1)
        entropy = 0.5 * jnp.log(2 * jnp.pi * jnp.e) + self.log_std + self._log_slope(slope)
        return (entropy * self.used).sum(-1)

    def _log_slope(self, tanh: Array) -> Array:
        """Of the action by the raw draw: the bounds', and when squashed that of tanh."""
        half = self.high / 2 - self.low / 2
        return jnp.log(jnp.where(half > 0, half, 1.0)) + jnp.where(self.squash, tanh, 0.0)


def _log_tanh_slope(raw: Array) -> Array:
    return 2 * (jnp.log(2.0) - raw - jax.nn.softplus(-2 * raw))


class Point(NamedTuple):
    """A deterministic policy of real vectors, in units of the bounds."""

    raw: Array  # […,N,A] before it is squashed into [-1,1]
    legal: Array  # […,N,A] bool dimensions that this agent has a choice in; the others stay 0

    def mode(self) -> Array:
        return jnp.tanh(self.raw) * self.legal

    def explore(self, key: Array, noise: Array | float) -> Array:
        """Itself with Gaussian noise, within the bounds."""
        return jnp.clip(self.mode() + noise * jax.random.normal(key, self.raw.shape), -1.0, 1.0) * self.legal

    def relaxed(self, key: Array, temperature: float) -> Array:
        """Differentiable as it is."""
        return self.mode()


class Relaxed(NamedTuple):
    """A choice among actions that gradients pass through (Gumbel-softmax; Jang et al. 2017, Maddison et al. 2017)."""

    raw: Array  # […,N,A] logits as the net gave them
    legal: Array  # […,N,A]
    log_probs: Array  # […,N,A] normalised over the legal actions

    def mode(self) -> Array:
        return jax.nn.one_hot(jnp.argmax(self.log_probs, -1), self.log_probs.shape[-1])

    def explore(self, key: Array, noise: Array | float) -> Array:
        """A draw: the largest of the Gumbel-perturbed logits, which is one from the softmax."""
        return jax.nn.one_hot(Categorical(self.log_probs).sample(key), self.log_probs.shape[-1])

    def relaxed(self, key: Array, temperature: float) -> Array:
        """One-hot forwards, softmax of the perturbed logits backwards (straight-through)."""
        perturbed = self.log_probs + jax.random.gumbel(key, self.log_probs.shape)
        soft = jax.nn.softmax(perturbed / temperature)
        hard = jax.nn.one_hot(jnp.argmax(perturbed, -1), soft.shape[-1])
        return hard + soft - jax.lax.stop_gradient(soft)


def masked(logits: Array, legal: Array) -> Categorical:
    """Over the legal actions only; over all of them where none is legal."""
    legal = legal | ~legal.any(-1, keepdims=True)
    return Categorical(jax.nn.log_softmax(jnp.where(legal, logits, ILLEGAL)))


def free(legal: Array, space: Box) -> Array:
    """Dimensions in use whose bounds leave a choice; what is between two equal bounds is held there."""
    return legal & (jnp.asarray(space.high) > jnp.asarray(space.low))


def uniform(legal: Array) -> Categorical:
    """Every legal action alike."""
    return masked(jnp.zeros(legal.shape), legal)


class CategoricalHead(eqx.Module):
    logits: Dense

    def __init__(self, rng: Rng, owner: tuple[int, ...], hidden: int, space: Discrete):
        self.logits = Dense(rng, owner, hidden, space.n, gain=0.01)

    def __call__(self, features: Array, legal: Array) -> Categorical:
        return masked(self.logits(features), legal)


class GaussianHead(eqx.Module):
    mean: Dense
    log_std: Array  # [G,A]
    space: Box = eqx.field(static=True)
    squash: bool = eqx.field(static=True)

    def __init__(self, rng: Rng, owner: tuple[int, ...], hidden: int, space: Box, squash: bool):
        self.mean = Dense(rng, owner, hidden, space.size, gain=0.01)
        self.log_std = jnp.full((max(owner) + 1, space.size), -0.5)
        self.space, self.squash = space, squash

    def __call__(self, features: Array, legal: Array) -> Gaussian:
        log_std = self.log_std[jnp.asarray(self.mean.owner)]
        low, high = jnp.asarray(self.space.low), jnp.asarray(self.space.high)
        return Gaussian(self.mean(features), log_std, free(legal, self.space), low, high, self.squash)


class PointHead(eqx.Module):
    out: Dense
    space: Space = eqx.field(static=True)

    def __init__(self, rng: Rng, owner: tuple[int, ...], hidden: int, space: Space):
        self.out = Dense(rng, owner, hidden, space.size, gain=0.01)
        self.space = space

    def __call__(self, features: Array, legal: Array) -> Point | Relaxed:
        out = self.out(features)
        if isinstance(self.space, Box):
            return Point(out, free(legal, self.space))
        return Relaxed(out, legal, masked(out, legal).log_probs)


class SquashedHead(eqx.Module):
    """A tanh Gaussian in units of the bounds whose deviation the features decide."""

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


def policy_head(rng: Rng, owner: tuple[int, ...], hidden: int, spec: Spec, squash: bool):
    """The head for a team's action space."""
    if isinstance(spec.action, Box):
        return GaussianHead(rng, owner, hidden, spec.action, squash)
    return CategoricalHead(rng, owner, hidden, spec.action)


def best(values: Array, legal: Array) -> Array:
    """The number of each agent's best legal action, `[…,N]`."""
    return jnp.argmax(jnp.where(legal, values, -jnp.inf), -1)


def duel(out: Array, legal: Array) -> Array:
    """Values of actions `[…,A]` from their advantages and one more number, the value they all share.

    Wang et al. 2016, eq. 9, the mean over legal actions: the error of the value, the same for every action and by far
    the larger, is kept out of what tells them apart.
    """
    size = legal.shape[-1]
    value, gain = out[..., size:], out[..., :size]
    mean = (gain * legal).sum(-1, keepdims=True) / jnp.maximum(legal.sum(-1, keepdims=True), 1)
    return value + gain - mean


def pick(values: Array, action: Array) -> Array:
    """`values[…,action]`, as a masked sum: its gradient then needs no scatter."""
    return (values * jax.nn.one_hot(action, values.shape[-1])).sum(-1)

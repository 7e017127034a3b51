"""Distributions over an agent's actions.

A distribution draws `raw` values, whose log-probability can be evaluated again, and `action` turns
them into what the game receives.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from numpy.polynomial.hermite_e import hermegauss

ILLEGAL = -1e9  # a finite logit, so that a row without any legal action stays finite


# Gauss–Hermite: the mean of f over a standard normal is Σ weight · f(node)
NODES, _weights = hermegauss(16)
WEIGHTS = _weights / _weights.sum()


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
        middle = self.high / 2 + self.low / 2
        half = self.high / 2 - self.low / 2
        return jnp.where(
            self.squash,
            middle + half * jnp.tanh(raw),
            jnp.clip(middle + half * raw, self.low, self.high),
        )

    def log_prob(self, raw: Array) -> Array:
        """Of the action a raw draw stands for (before clipping, when clipped)."""
        z = (raw - self.mean) * jnp.exp(-self.log_std)
        density = (
            -0.5 * (z * z + jnp.log(2 * jnp.pi))
            - self.log_std
            - self._log_slope(_log_tanh_slope(raw))
        )
        return (density * self.used).sum(-1)

    def entropy(self) -> Array:
        """Of the Gaussian before clipping; when squashed with the mean of what tanh does to it, by
        quadrature.

        That mean falls faster than the deviation's logarithm rises: what is squashed has a largest
        entropy.
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


class Deterministic(NamedTuple):
    """A deterministic policy of real vectors, in units of the bounds."""

    raw: Array  # […,N,A] before it is squashed into [-1,1]
    legal: Array  # […,N,A] bool dimensions that this agent has a choice in; the others stay 0

    def mode(self) -> Array:
        return jnp.tanh(self.raw) * self.legal

    def explore(self, key: Array, noise: Array | float) -> Array:
        """Itself with Gaussian noise, within the bounds."""
        return (
            jnp.clip(self.mode() + noise * jax.random.normal(key, self.raw.shape), -1.0, 1.0)
            * self.legal
        )

    def relaxed(self, key: Array, temperature: float) -> Array:
        """Differentiable as it is."""
        return self.mode()


class Relaxed(NamedTuple):
    """A choice among actions that gradients pass through (Gumbel-softmax; Jang et al. 2017,
    Maddison et al. 2017)."""

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


def uniform(legal: Array) -> Categorical:
    """Every legal action alike."""
    return masked(jnp.zeros(legal.shape), legal)


def pick(values: Array, action: Array) -> Array:
    """`values[…,action]`, as a masked sum: its gradient then needs no scatter."""
    return (values * jax.nn.one_hot(action, values.shape[-1])).sum(-1)

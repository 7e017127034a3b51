"""Distributions over an agent's actions.

A distribution samples `raw` values, whose log-probability can be computed again later. `action`
turns a raw value into the action that the game receives.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from numpy.polynomial.hermite_e import hermegauss

from .layers import inner

ILLEGAL = -1e9  # finite, so that a row without any legal action stays finite


# Gauss–Hermite quadrature: the mean of f over a standard normal is Σ weight · f(node)
NODES, _weights = hermegauss(16)
WEIGHTS = _weights / _weights.sum()


class Categorical(NamedTuple):
    log_probs: Array  # […,N,A] normalised over the legal actions

    def sample(self, key: Array) -> Array:
        """Sample with one random number per agent, not one per action."""
        return self.at(jax.random.uniform(key, self.log_probs.shape[:-1]))

    def at(self, number: Array) -> Array:
        """The action at each point in [0,1) of the cumulative distribution."""
        probs = jnp.exp(self.log_probs)
        size = probs.shape[-1]
        below = (probs[..., None, :] * jnp.tri(size)).sum(-1)
        draw = 1.0 - number[..., None]  # in (0,1]: never picks an action of probability 0
        return jnp.argmax((below >= draw * below[..., -1:]) & (probs > 0), -1)

    def mode(self) -> Array:
        return jnp.argmax(self.log_probs, -1)

    def action(self, raw: Array) -> Array:
        return raw

    def log_prob(self, raw: Array) -> Array:
        return pick(self.log_probs, raw)

    def entropy(self) -> Array:
        return -inner(jnp.exp(self.log_probs), self.log_probs)

    def kl(self, other: Categorical) -> Array:
        """KL divergence of another from this one; both have the same legal actions."""
        return inner(jnp.exp(self.log_probs), self.log_probs - other.log_probs)


class Factored(NamedTuple):
    """An action of several parts, each drawn by itself; `raw` is `[…,N,P]`."""

    parts: tuple[Categorical, ...]

    def sample(self, key: Array) -> Array:
        shape = self.parts[0].log_probs.shape[:-1]
        return self.at(jax.random.uniform(key, (*shape, len(self.parts))))

    def at(self, number: Array) -> Array:
        """The parts at points in [0,1) of their cumulative distributions."""
        return jnp.stack([part.at(number[..., i]) for i, part in enumerate(self.parts)], -1)

    def mode(self) -> Array:
        return jnp.stack([part.mode() for part in self.parts], -1)

    def action(self, raw: Array) -> Array:
        return raw

    def log_prob(self, raw: Array) -> Array:
        return sum_of([part.log_prob(raw[..., i]) for i, part in enumerate(self.parts)])

    def entropy(self) -> Array:
        return sum_of([part.entropy() for part in self.parts])

    def kl(self, other: Factored) -> Array:
        """KL divergence of another from this one."""
        return sum_of([a.kl(b) for a, b in zip(self.parts, other.parts, strict=True)])


class Gaussian(NamedTuple):
    mean: Array  # […,N,A]
    log_std: Array  # broadcastable to the mean
    used: Array  # […,N,A] bool: dimensions in which this agent has a choice
    low: Array  # [A] or [N,A]
    high: Array
    squash: bool | Array

    def sample(self, key: Array) -> Array:
        return self.at(jax.random.normal(key, self.mean.shape))

    def at(self, noise: Array) -> Array:
        """The sample that standard normal noise stands for."""
        return self.mean + jnp.exp(self.log_std) * noise

    def mode(self) -> Array:
        return self.mean

    def action(self, raw: Array) -> Array:
        """Map a raw sample into the bounds: by tanh if squashed, else by clipping."""
        middle = self.high / 2 + self.low / 2
        half = self.high / 2 - self.low / 2
        return jnp.where(
            self.squash,
            middle + half * jnp.tanh(raw),
            jnp.clip(middle + half * raw, self.low, self.high),
        )

    def log_prob(self, raw: Array) -> Array:
        """Log-density of the action that a raw sample stands for; if clipped, before clipping."""
        z = (raw - self.mean) * jnp.exp(-self.log_std)
        density = (
            -0.5 * (z * z + jnp.log(2 * jnp.pi))
            - self.log_std
            - self._log_slope(_log_tanh_slope(raw))
        )
        return (density * self.used).sum(-1)

    def entropy(self) -> Array:
        """Entropy of the Gaussian before clipping; if squashed, plus the mean log slope of tanh.

        The mean is taken by quadrature. It falls faster than the log deviation rises, so the
        entropy of a squashed Gaussian has a maximum.
        """
        raw = self.mean[..., None] + jnp.exp(self.log_std)[..., None] * NODES
        slope = (_log_tanh_slope(raw) * WEIGHTS).sum(-1)
        entropy = 0.5 * jnp.log(2 * jnp.pi * jnp.e) + self.log_std + self._log_slope(slope)
        return (entropy * self.used).sum(-1)

    def kl(self, other: Gaussian) -> Array:
        """KL divergence of another from this one, before clipping; squashing does not change it."""
        away = (self.mean - other.mean) ** 2 + jnp.exp(2 * self.log_std)
        shift = other.log_std - self.log_std
        return ((shift + 0.5 * (away * jnp.exp(-2 * other.log_std) - 1)) * self.used).sum(-1)

    def _log_slope(self, tanh: Array) -> Array:
        """Log slope from raw sample to action: of the bounds and, if squashed, of tanh."""
        half = self.high / 2 - self.low / 2
        return jnp.log(jnp.where(half > 0, half, 1.0)) + jnp.where(self.squash, tanh, 0.0)


def _log_tanh_slope(raw: Array) -> Array:
    return 2 * (jnp.log(2.0) - raw - jax.nn.softplus(-2 * raw))


class Deterministic(NamedTuple):
    """A deterministic policy over real vectors, with bounds scaled to [-1,1]."""

    raw: Array  # […,N,A] before tanh
    legal: Array  # […,N,A] bool: dimensions in which this agent has a choice; the others stay 0

    def mode(self) -> Array:
        return jnp.tanh(self.raw) * self.legal

    def explore(self, key: Array, noise: Array | float) -> Array:
        """The action plus Gaussian noise, clipped to the bounds."""
        return (
            jnp.clip(self.mode() + noise * jax.random.normal(key, self.raw.shape), -1.0, 1.0)
            * self.legal
        )

    def relaxed(self, key: Array, temperature: float) -> Array:
        """The action itself, which is differentiable already."""
        return self.mode()


class Relaxed(NamedTuple):
    """A categorical policy that gradients pass through: Gumbel-softmax.

    Jang et al. 2017, Maddison et al. 2017.
    """

    raw: Array  # […,N,A] the net's logits
    legal: Array  # […,N,A]
    log_probs: Array  # […,N,A] normalised over the legal actions

    def mode(self) -> Array:
        return jax.nn.one_hot(jnp.argmax(self.log_probs, -1), self.log_probs.shape[-1])

    def explore(self, key: Array, noise: Array | float) -> Array:
        """A one-hot sample from the softmax: the largest of the Gumbel-perturbed logits."""
        return jax.nn.one_hot(Categorical(self.log_probs).sample(key), self.log_probs.shape[-1])

    def relaxed(self, key: Array, temperature: float) -> Array:
        """One-hot in the forward pass, softmax of the perturbed logits in the backward pass."""
        perturbed = self.log_probs + jax.random.gumbel(key, self.log_probs.shape)
        soft = jax.nn.softmax(perturbed / temperature)
        hard = jax.nn.one_hot(jnp.argmax(perturbed, -1), soft.shape[-1])
        return hard + soft - jax.lax.stop_gradient(soft)


def masked(logits: Array, legal: Array) -> Categorical:
    """Categorical over the legal actions; over all actions where none is legal."""
    legal = legal | ~legal.any(-1, keepdims=True)
    return Categorical(jax.nn.log_softmax(jnp.where(legal, logits, ILLEGAL)))


def sum_of(arrays: list[Array]) -> Array:
    """The sum of arrays of one shape."""
    return jnp.stack(arrays).sum(0)


def uniform(legal: Array) -> Categorical:
    """Uniform over the legal actions."""
    return masked(jnp.zeros(legal.shape), legal)


def pick(values: Array, action: Array) -> Array:
    """`values[…,action]`, computed as a masked sum, whose gradient needs no scatter."""
    return inner(values, jax.nn.one_hot(action, values.shape[-1]))

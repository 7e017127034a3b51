"""Mixers: agents' utilities and the state -> one value of the team."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .layers import Dense, Rng, standardised

ONE = (0,)  # a mixer's parameters have one owner, the team


class Hyper(eqx.Module):
    """A hypernetwork: the state -> weights of another net, through hidden layers of these sizes."""

    layers: tuple[Dense, ...]

    def __init__(self, rng: Rng, ins: int, outs: int, *hidden: int):
        sizes = [ins, *hidden, outs]
        # start small: a steep mixer feeds back on its own targets
        gains = [2**0.5] * len(hidden) + [0.1]
        self.layers = tuple(
            Dense(rng, ONE, *shape) for shape in zip(sizes, sizes[1:], gains, strict=False)
        )

    def __call__(self, *parts: Array) -> Array:
        *inner, last = self.layers
        for layer in inner:
            parts = (standardised(jax.nn.relu(layer(*parts))),)  # however large the state is
        return last(*parts)

    def rescaled(self, ratio: Array, shift: Array | float) -> Hyper:
        """Outputs times `ratio`, plus `shift`."""
        return eqx.tree_at(lambda net: net.layers[-1], self, self.layers[-1].rescaled(ratio, shift))


class Monotone(eqx.Module):
    """QMIX's mixer (Rashid et al. 2018): its weights come from the state and are never negative."""

    weight: Hyper  # [S] -> [N·E]
    bias: Hyper  # [S] -> [E]
    out: Hyper  # [S] -> [E]
    value: Hyper  # [S] -> [1]

    def __init__(self, rng: Rng, agents: int, state: int, embedding: int, hidden: int):
        self.weight = Hyper(rng, state, agents * embedding, hidden)
        self.bias = Hyper(rng, state, embedding)
        self.out = Hyper(rng, state, embedding, hidden)
        self.value = Hyper(rng, state, 1, embedding)

    def __call__(self, q: Array, state: Array) -> Array:
        """`[T,B,N]` and `[T,B,S]` to `[T,B,1]`."""
        weight = jnp.abs(self.weight(state)).reshape(*q.shape, -1)
        inner = jax.nn.elu((q[..., None] * weight).sum(-2) + self.bias(state))
        return (inner * jnp.abs(self.out(state))).sum(-1, keepdims=True) + self.value(state)

    def rescaled(self, ratio: Array, shift: Array | float) -> Monotone:
        """The mix times `ratio`, which is positive, plus `shift`."""
        moved = self.out.rescaled(ratio, 0.0), self.value.rescaled(ratio, shift)
        return eqx.tree_at(lambda mixer: (mixer.out, mixer.value), self, moved)


class Duplex(eqx.Module):
    """QPLEX's mixer (Wang et al. 2021): a value plus advantages with positive weights.

    The weights depend on the state and the joint action.
    """

    scale: Hyper  # [S] -> [N] w, eq. 8
    shift: Hyper  # [S] -> [N] b
    keys: Hyper  # [S] -> [K] weight of each attention head
    agents: Hyper  # [S] -> [K·N] attention to agents
    actions: Hyper  # [S+N·A] -> [K·N] attention to agents' actions
    heads: int = eqx.field(static=True)

    def __init__(self, rng: Rng, agents: int, state: int, actions: int, heads: int, hidden: int):
        self.scale = Hyper(rng, state, agents, hidden)
        self.shift = Hyper(rng, state, agents, hidden)
        self.keys = Hyper(rng, state, heads)
        self.agents = Hyper(rng, state, heads * agents)
        self.actions = Hyper(rng, state + agents * actions, heads * agents, hidden)
        self.heads = heads

    def __call__(self, q: Array, best: Array, state: Array, joint: Array) -> Array:
        """Map utilities `[T,B,N]` of the actions taken and of the best ones to `[T,B,1]`.

        `joint [T,B,N·A]` are the actions taken.
        """
        # near 1 at the start
        scale = jnp.abs(1 + self.scale(state)) + 1e-10
        shift = self.shift(state)
        # Eq. 6-8 as the authors compute them: V + λA = Q + (λ-1)A. The last A has no gradient, so
        # that a λ near 0 does not keep an agent from learning.
        utility = scale * q + shift
        advantage = jax.lax.stop_gradient(scale * (q - best))
        by_head = (*q.shape[:-1], self.heads, q.shape[-1])
        looks = jax.nn.sigmoid(self.agents(state)).reshape(by_head) * jax.nn.sigmoid(
            self.actions(state, joint)
        ).reshape(by_head)
        weight = ((jnp.abs(self.keys(state)) + 1e-10)[..., None] * looks).sum(-2)  # λ > 0, eq. 10
        return (utility + (weight - 1) * advantage).sum(-1, keepdims=True)


class UnrestrictedMixer(eqx.Module):
    """An unrestricted mixer: Q* of weighted QMIX (Rashid et al. 2020)."""

    net: Hyper
    value: Hyper

    def __init__(self, rng: Rng, agents: int, state: int, hidden: int):
        self.net = Hyper(rng, agents + state, 1, hidden, hidden)
        self.value = Hyper(rng, state, 1, hidden)

    def __call__(self, q: Array, state: Array) -> Array:
        return self.net(q, state) + self.value(state)


class Mixed(eqx.Module):
    """Each agent's critic, and the mixer of their values."""

    local: Any
    mixer: Monotone | UnrestrictedMixer | None  # None: the sum

    @property
    def torso(self) -> Any:
        return self.local.torso

    @property
    def memory(self) -> Any:
        return self.local.memory

    def team(self, values: Array, state: Array) -> Array:
        """Mix values `[T,B,N]`, given the state `[T,B,S]`, into `[T,B,1]`."""
        return values.sum(-1, keepdims=True) if self.mixer is None else self.mixer(values, state)

    def rescaled(self, ratio: Array, shift: Array | float) -> Mixed:
        """The team's value times `ratio`, plus `shift`; a sum over the living has no such form."""
        assert isinstance(self.mixer, Monotone)
        return Mixed(self.local, self.mixer.rescaled(ratio, shift))

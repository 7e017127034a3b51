"""Nets of curiosity: how unexpected a transition is, and what they learn from it.

Models of other packages are found by an entry point of `shoal.curiosities` or by import path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .. import plugins
from ..errors import ShoalError, did_you_mean
from ..types import Box, Space, Spec
from .layers import Dense, Rng


class Transitions(NamedTuple):
    """What a model of curiosity reads."""

    obs: Array  # [T,B,N,F] normalised; images are bytes
    action: Array  # [T,B,N,A] as nets read it
    legal: Array  # [T,B,N,A] bool: actions allowed (Discrete), dimensions in use (Box)
    next_obs: Array  # [T,B,N,F]


Encoder = Callable[[Array], Array]  # observations [T,B,N,F] -> features [T,B,N,hidden]


class Curiosity(Protocol):
    """A model of what agents see. It must be a pytree of arrays, such as an equinox module."""

    def __init__(
        self,
        rng: Rng,
        owner: tuple[int, ...],
        spec: Spec,
        hidden: int,
        encoder: Callable[[], Encoder],
    ):
        """Create the nets; each call of `encoder` returns a new feed-forward net."""
        ...

    def bonus(self, seen: Transitions) -> Array:
        """`[T,B,N]` how unexpected each transition is, not negative."""
        ...

    def loss(self, seen: Transitions) -> Array:
        """`[T,B,N]` what gradient steps lower."""
        ...


class RND(eqx.Module):
    """Random network distillation (Burda et al. 2018): the error of predicting a fixed random net
    of the next observation."""

    target: Any  # its gradients are 0, so it stays as it is
    target_out: Dense
    predictor: Any
    inner: Dense
    out: Dense

    def __init__(
        self,
        rng: Rng,
        owner: tuple[int, ...],
        spec: Spec,
        hidden: int,
        encoder: Callable[[], Encoder],
    ):
        self.target = encoder()
        self.target_out = Dense(rng, owner, hidden, hidden, gain=1.0)
        self.predictor = encoder()
        self.inner = Dense(rng, owner, hidden, hidden)
        self.out = Dense(rng, owner, hidden, hidden, gain=1.0)

    def bonus(self, seen: Transitions) -> Array:
        target = jax.lax.stop_gradient(self.target_out(self.target(seen.next_obs)))
        guess = self.out(jax.nn.relu(self.inner(self.predictor(seen.next_obs))))
        return jnp.square(guess - target).mean(-1)

    def loss(self, seen: Transitions) -> Array:
        return self.bonus(seen)


class ICM(eqx.Module):
    """Intrinsic curiosity module (Pathak et al. 2017): the error of predicting the next features.

    Features learn from the inverse model alone, which guesses the action between two observations:
    they keep what agents can influence. The paper lets the forward model shape them too.
    """

    encoder: Any
    inverse: tuple[Dense, Dense]
    forward: tuple[Dense, Dense]
    space: Space = eqx.field(static=True)

    def __init__(
        self,
        rng: Rng,
        owner: tuple[int, ...],
        spec: Spec,
        hidden: int,
        encoder: Callable[[], Encoder],
    ):
        actions = spec.action.size
        self.encoder = encoder()
        self.inverse = (
            Dense(rng, owner, 2 * hidden, hidden),
            Dense(rng, owner, hidden, actions, gain=1.0),
        )
        self.forward = (
            Dense(rng, owner, hidden + actions, hidden),
            Dense(rng, owner, hidden, hidden, gain=1.0),
        )
        self.space = spec.action

    def bonus(self, seen: Transitions) -> Array:
        return self._surprise(seen, self.encoder(seen.obs), self.encoder(seen.next_obs))

    def loss(self, seen: Transitions) -> Array:
        before = self.encoder(seen.obs)
        after = self.encoder(seen.next_obs)
        guess = _two(self.inverse, before, after)
        if isinstance(self.space, Box):
            wrong = (jnp.square(guess - seen.action) * seen.legal).sum(-1)
        else:
            likely = self.space.split(jnp.where(seen.legal, guess, -1e9))
            log_probs = jnp.concatenate([jax.nn.log_softmax(part) for part in likely], -1)
            wrong = -(seen.action * log_probs).sum(-1)
        return wrong + self._surprise(seen, before, after)

    def _surprise(self, seen: Transitions, before: Array, after: Array) -> Array:
        """Half the squared error of the forward model (eq. 6), averaged over the features."""
        before, after = jax.lax.stop_gradient((before, after))
        return 0.5 * jnp.square(_two(self.forward, before, seen.action) - after).mean(-1)


def _two(layers: tuple[Dense, Dense], *parts: Array) -> Array:
    return layers[1](jax.nn.relu(layers[0](*parts)))


CURIOSITIES: dict[str, type[Curiosity]] = {"icm": ICM, "rnd": RND}


def find(name: str) -> type[Curiosity]:
    """Find a model of curiosity by name, entry point or import path."""
    if name in CURIOSITIES:
        return CURIOSITIES[name]
    path = plugins.path_of("curiosity", name)
    if not path:
        names = [*CURIOSITIES, *plugins.entries("curiosity")]
        raise ShoalError(
            f"there is no curiosity {name!r}{did_you_mean(name, names)}: curiosity is"
            f" {', '.join(names)} or <module>:<class>"
        )
    model = plugins.load(path)
    for part in ("bonus", "loss"):
        if not isinstance(model, type) or not hasattr(model, part):
            raise ShoalError(f"{path} is not a curiosity: it must be a class that has {part}")
    return model

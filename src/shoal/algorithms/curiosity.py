"""Intrinsic motivation: a bonus for what is new, from a model that learns what agents have seen.

The bonus is computed when a learner reads a window, by the model of that moment: a transition drawn
from a replay counts as new only as long as it is. The model then learns from each window once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..learning.normalise import ReturnNormaliser
from ..learning.optim import adam, descend
from ..learning.reduce import mean_weights, total
from ..learning.returns import advantages
from ..learning.trees import at
from ..nets import curiosity
from ..nets.curiosity import Transitions
from ..nets.inputs import as_input
from ..nets.layers import Rng
from ..types import Spec, Window
from .base import Metrics

STEPS = 4  # gradient steps of the model on each window, each on a random part of it
CLIP = 5.0  # bound of normalised observations, in deviations
PART = "curiosity"


class Motive(NamedTuple):
    """What curiosity adds to a learner."""

    model: Any
    opt: Any
    seen: ReturnNormaliser  # of observations, [F] each; [0] for images
    scale: ReturnNormaliser  # of the discounted sums of raw bonuses


class SeenBy(eqx.Module):
    """A torso as a plain function of observations."""

    torso: Any

    def __call__(self, obs: Array) -> Array:
        unused = jnp.zeros(())
        return self.torso((obs,), unused, unused)[0]


class Drive:
    """How a team's model of curiosity pays and learns."""

    def __init__(
        self,
        kind: str,
        spec: Spec,
        owner: tuple[int, ...],
        hidden: int,
        lr: float,
        gamma: float,
        max_grad_norm: float,
    ):
        self.kind = curiosity.find(kind)
        self.spec = spec
        self.owner = owner
        self.hidden = hidden
        self.lr = lr
        self.gamma = gamma
        self.tx = adam(max_grad_norm)

    def init(self, rng: Rng, torso: Callable[[], Any]) -> Motive:
        """A new model; each call of `torso` returns a new net that reads observations."""
        model: Any = self.kind(rng, self.owner, self.spec, self.hidden, lambda: SeenBy(torso()))
        size = 0 if self.spec.pixels else self.spec.obs
        return Motive(model, self.tx.init(model), _nothing_seen((size,)), _nothing_seen(()))

    def bonus(self, motive: Motive, window: Window) -> Array:
        """`[T,B,N]` the bonus of each transition, normalised.

        It is 0 on dummy transitions, for the dead, and before the model has seen a window.
        """
        raw = self._raw(motive, self._transitions(motive, window))
        counts = _counts(window) * (motive.scale.windows > 0)
        return raw / motive.scale.deviation * counts

    def learn(self, motive: Motive, window: Window, key: Array) -> tuple[Motive, Metrics]:
        """Update statistics and model from a window just played."""
        counts = _counts(window)
        weight = mean_weights(counts)
        if not self.spec.pixels:
            seen = motive.seen.update(window.view.obs[1:], weight[..., None], 1.0, (0, 1, 2))
            motive = motive._replace(seen=seen)
        transitions = self._transitions(motive, window)
        raw = self._raw(motive, transitions) * counts
        motive = motive._replace(scale=motive.scale.update(self._returns(raw), weight, 1.0))
        paid = total((raw / motive.scale.deviation * weight).sum())
        # time and games become rows, [1,T·B,…]
        rows = jax.tree.map(lambda x: x.reshape(1, -1, *x.shape[2:]), (transitions, counts))
        count = rows[1].shape[1]
        chosen = jax.random.randint(key, (STEPS, -(-count // STEPS)), 0, count)
        motive, losses = jax.lax.scan(partial(self._step, *rows), motive, chosen)
        return motive, {"curiosity_bonus": paid, "curiosity_loss": losses.mean()}

    def _step(
        self, transitions: Transitions, counts: Array, motive: Motive, rows: Array
    ) -> tuple[Motive, Array]:
        """One gradient step of the model."""
        some, weight = at((transitions, counts), np.s_[:, rows])
        loss = partial(_loss, some, mean_weights(weight))
        value, grads = total(jax.value_and_grad(loss)(motive.model))
        model, opt, _ = descend(
            self.tx,
            {PART: motive.model},
            {PART: motive.opt},
            {PART: grads},
            {PART: jnp.float32(self.lr)},
        )
        return motive._replace(model=model[PART], opt=opt[PART]), value

    def _transitions(self, motive: Motive, window: Window) -> Transitions:
        obs = window.view.obs
        if not self.spec.pixels:
            obs = jnp.clip(motive.seen.down(obs), -CLIP, CLIP)
        action = as_input(window.action, self.spec)
        return Transitions(obs[:-1], action, window.view.legal[:-1], obs[1:])

    def _raw(self, motive: Motive, transitions: Transitions) -> Array:
        return jax.lax.stop_gradient(motive.model.bonus(transitions))

    def _returns(self, raw: Array) -> Array:
        """Discounted sums to the window's end, also over the ends of episodes (RND, §2.4)."""
        values = jnp.zeros((raw.shape[0] + 1, *raw.shape[1:]))
        always = jnp.ones_like(raw)
        return advantages(raw, always, values, always, self.gamma, 1.0)


def _nothing_seen(shape: tuple[int, ...]) -> ReturnNormaliser:
    return ReturnNormaliser(jnp.zeros(shape), jnp.ones(shape), jnp.zeros(()))


def _loss(transitions: Transitions, weight: Array, model: Any) -> Array:
    return (model.loss(transitions) * weight).sum()


def _counts(window: Window) -> Array:
    """`[T,B,N]` 1 where an agent lives before and after a transition, else 0."""
    return window.weight * window.view.alive[1:]

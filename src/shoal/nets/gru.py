"""The recurrent torso: a GRU unrolled over time, with a hand-written derivative."""

from __future__ import annotations

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from .layers import Dense, Rng
from .mlp import Mlp, Parts, Style


class Gru(eqx.Module):
    """Dense layers, then a GRU (Cho et al. 2014) unrolled over time; `first` resets the carry."""

    recurrent: ClassVar[bool] = True
    inner: Mlp
    inputs: Dense  # [H] -> [3H], for all instants at once, outside the time scan
    hidden: Dense  # [H] -> [3H]

    def __init__(
        self, rng: Rng, owner: tuple[int, ...], ins: int, hidden: int, layers: int, style: Style
    ):
        self.inner = Mlp(rng, owner, ins, hidden, max(layers - 1, 1), style)
        self.inputs = Dense(rng, owner, hidden, 3 * hidden, gain=1.0)
        self.hidden = Dense(rng, owner, hidden, 3 * hidden, gain=1.0)

    def carry(self, games: int, rows: int) -> Array:
        return jnp.zeros((games, rows, self.hidden.weight.shape[1]))

    def __call__(self, parts: Parts, carry: Array, first: Array) -> tuple[Array, Array]:
        features, _ = self.inner(parts, carry, first)
        keep = (~first).astype(features.dtype)[..., None, None]
        states = unroll(self.hidden, self.inputs(features), carry, keep)
        return states, states[-1]


@jax.custom_vjp
def unroll(hidden: Dense, gates: Array, carry: Array, keep: Array) -> Array:
    """Hidden states `[T,B,N,H]` of a GRU from its input gates `[T,B,N,3H]`.

    The derivative is written by hand: autodiff would add up the gradient of the recurrent weights
    step by step; here it is one matmul over all steps.
    """
    return _forward(hidden, gates, carry, keep)[0]


def _forward(
    hidden: Dense, gates: Array, carry: Array, keep: Array
) -> tuple[Array, tuple[Array, ...]]:
    def step(h: Array, inputs: tuple[Array, ...]) -> tuple[Array, tuple[Array, ...]]:
        reset_x, update_x, new_x, kept = inputs
        before = h * kept
        reset_h, update_h, new_h = jnp.split(hidden(before), 3, -1)
        reset = jax.nn.sigmoid(reset_x + reset_h)
        update = jax.nn.sigmoid(update_x + update_h)
        new = jnp.tanh(new_x + reset * new_h)
        h = new + update * (before - new)
        return h, (h, before, reset, update, new, new_h)

    # Split the gates before the scan: slicing them inside it makes XLA several times slower.
    _, (states, *saved) = jax.lax.scan(step, carry, (*jnp.split(gates, 3, -1), keep))
    return states, tuple(saved)


def _unroll_fwd(hidden: Dense, gates: Array, carry: Array, keep: Array) -> tuple[Array, tuple]:
    states, saved = _forward(hidden, gates, carry, keep)
    return states, (hidden, keep, saved)


def _unroll_bwd(residual: tuple, grad: Array) -> tuple:
    hidden, keep, (before, reset, update, new, new_h) = residual
    back = hidden.transposed()

    def step(later: Array, inputs: tuple[Array, ...]) -> tuple[Array, tuple[Array, Array]]:
        grad, kept, before, reset, update, new, new_h = inputs
        grad = grad + later
        pre_new = grad * (1 - update) * (1 - new * new)
        pre_update = grad * (before - new) * update * (1 - update)
        pre_reset = pre_new * new_h * reset * (1 - reset)
        gates = jnp.concatenate([pre_reset, pre_update, pre_new], -1)
        recurrent = jnp.concatenate([pre_reset, pre_update, pre_new * reset], -1)
        return (grad * update + back(recurrent)) * kept, (gates, recurrent)

    start = jnp.zeros_like(grad[0])
    carry, (gates, recurrent) = jax.lax.scan(
        step, start, (grad, keep, before, reset, update, new, new_h), reverse=True
    )
    (weights,) = jax.vjp(lambda dense: dense(before), hidden)[1](recurrent)
    return weights, gates, carry, jnp.zeros_like(keep)


unroll.defvjp(_unroll_fwd, _unroll_bwd)

"""Gradient steps, and target networks that follow."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array


def adam(max_norm: float) -> optax.GradientTransformation:
    """Adam directions of norm-clipped gradients; the caller scales them by its learning rate."""
    return optax.chain(optax.clip_by_global_norm(max_norm), optax.scale_by_adam(eps=1e-5))


def descend(
    tx: optax.GradientTransformation, params: dict, opt: dict, grads: dict, rates: dict[str, Array]
) -> tuple[dict, dict, dict[str, Array]]:
    """One step of every part of `params` that has a rate."""
    new_params = dict(params)
    new_opt = dict(opt)
    norms = {}
    for part, rate in rates.items():
        updates, new_opt[part] = tx.update(grads[part], opt[part])
        new_params[part] = jax.tree.map(lambda p, u, rate=rate: p - rate * u, params[part], updates)
        norms[f"{part}_grad_norm"] = optax.tree.norm(grads[part])
    return new_params, new_opt, norms


def follow(target: Any, online: Any, tau: float | Array) -> Any:
    """The target moves by `tau` of the way."""
    return jax.tree.map(lambda t, o: (1 - tau) * t + tau * o, target, online)


def annealed(rate: float, anneal: bool, progress: Array) -> Array:
    """A learning rate that falls linearly to 0 over the run, if asked to."""
    return rate * jnp.where(anneal, jnp.maximum(1.0 - progress, 0.0), 1.0)

"""Gradient steps and target networks."""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import optax
from jax import Array

from .trees import Tree

ByPart = dict[str, Any]  # by part of the learner, such as "actor"


def adam(max_norm: float, epsilon: float = 1e-5) -> optax.GradientTransformation:
    """Adam directions of norm-clipped gradients; the caller scales them by its learning rate."""
    return optax.chain(optax.clip_by_global_norm(max_norm), optax.scale_by_adam(eps=epsilon))


def rmsprop(max_norm: float, adam_epsilon: float = 0.0) -> optax.GradientTransformation:
    """The same with RMSprop's directions, as in PyMARL: of PyTorch, decay 0.99, ε 1e-5."""
    scale = optax.scale_by_rms(decay=0.99, eps=1e-5, eps_in_sqrt=False)
    return optax.chain(optax.clip_by_global_norm(max_norm), scale)


OPTIMISERS = {"adam": adam, "rmsprop": rmsprop}


@jax.named_scope("optimise")
def descend(
    tx: optax.GradientTransformation,
    params: ByPart,
    opt: ByPart,
    grads: ByPart,
    rates: dict[str, Array],
) -> tuple[ByPart, ByPart, dict[str, Array]]:
    """Take one step for every part of `params` that has a rate; also return the gradient norms."""
    new_params = dict(params)
    new_opt = dict(opt)
    norms: dict[str, Array] = {}
    for part, rate in rates.items():
        updates, new_opt[part] = tx.update(grads[part], opt[part])
        new_params[part] = jax.tree.map(partial(_moved, rate), params[part], updates)
        norms[f"{part}_grad_norm"] = optax.tree.norm(grads[part])
    return new_params, new_opt, norms


def _moved(rate: Array, param: Array, update: Array) -> Array:
    return param - rate * update


@jax.named_scope("optimise")
def follow(target: Tree, online: Tree, tau: float | Array) -> Tree:
    """Move the target a fraction `tau` of the way towards the online parameters."""
    return jax.tree.map(partial(_between, tau), target, online)


def _between(tau: float | Array, target: Array, online: Array) -> Array:
    return (1 - tau) * target + tau * online


def annealed(rate: float, anneal: bool, progress: Array) -> Array:
    """The learning rate; with `anneal` it falls linearly to 0 over the run."""
    return rate * jnp.where(anneal, jnp.maximum(1.0 - progress, 0.0), 1.0)

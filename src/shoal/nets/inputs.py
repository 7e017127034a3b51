"""Inputs of nets: each `InputPart` maps instants of the stream to an array `[T,B,N or 1,F]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ..types import Box, Discrete, Spec, View


class Context(NamedTuple):
    """Some instants of one team's stream, with what was done at and before them."""

    view: View  # every field [T,B,…]
    # [T,B,N,A] the action before each instant, zeros where an episode opens; width 0 if not asked
    # for
    last: Array
    action: Any = None  # [T,B,N,A] the action at each instant, as nets read it, where it is known
    rivals: Any = None  # [T,B,M] the other teams' actions at each instant, where they are known


class InputPart(NamedTuple):
    """One input of a net: how wide it is, and how it is read from a `Context`."""

    size: Callable[[Spec], int]
    read: Callable[[Context, Spec], Array]


def as_input(action: Array, spec: Spec) -> Array:
    """An action `[…,N,A]` as nets read it: one-hot, or with its bounds moved to -1 and 1; 0 where
    these are equal."""
    if isinstance(spec.action, Discrete):
        return jax.nn.one_hot(action, spec.action.n)
    middle, half = bounds(spec.action)
    return jnp.where(half > 0, (action - middle) / jnp.where(half > 0, half, 1.0), 0.0)


def as_action(unit: Array, spec: Spec) -> Array:
    """The action as the game takes it."""
    if isinstance(spec.action, Discrete):
        return jnp.argmax(unit, -1)
    middle, half = bounds(spec.action)
    return middle + half * unit


def bounds(space: Box) -> tuple[Array, Array]:
    """Middle and half width of every dimension, `[A]` or `[N,A]`; halved first, as the sum may be
    too large."""
    low = jnp.asarray(space.low) / 2
    high = jnp.asarray(space.high) / 2
    return high + low, high - low


def _joint(context: Context, spec: Spec) -> Array:
    """All agents' actions side by side; where they differ by who looks (`[T,B,N,N,A]`), a row for
    each."""
    rows = context.action if context.action.ndim == 5 else context.action[..., None, :, :]
    return rows.reshape(*rows.shape[:-2], -1)


def _others(context: Context, spec: Spec) -> Array:
    others = context.action[..., None, :, :] * (1 - jnp.eye(spec.n))[:, :, None]
    return others.reshape(*others.shape[:-2], -1)


def _mean_action(context: Context, spec: Spec) -> Array:
    """Mean of what the other members of the team who live now did before this instant; zeros where
    there is none.

    Who lives now is known both to one who acts and to one who reads a drawn window from its first
    instant on; who lived then is not. An agent that died of the step before counts no longer. Sums
    less one's own: the cost grows with the agents, not with their pairs.
    """
    here = context.view.alive[..., None]
    done = jnp.where(here, context.last, 0.0)
    others = here.sum(-2, keepdims=True) - here
    return (done.sum(-2, keepdims=True) - done) / jnp.maximum(others, 1)


OBS = InputPart(lambda spec: spec.obs, lambda context, spec: context.view.obs)
STATE = InputPart(lambda spec: spec.state, lambda context, spec: context.view.state[..., None, :])
ID = InputPart(lambda spec: spec.n, lambda context, spec: jnp.eye(spec.n)[None, None])
LAST_ACTION = InputPart(lambda spec: spec.action.size, lambda context, spec: context.last)
MEAN_ACTION = InputPart(lambda spec: spec.action.size, _mean_action)
ACTION = InputPart(lambda spec: spec.action.size, lambda context, spec: context.action)
OTHERS_ACTION = InputPart(lambda spec: spec.n * spec.action.size, _others)
JOINT_ACTION = InputPart(lambda spec: spec.n * spec.action.size, _joint)
RIVALS_ACTION = InputPart(
    lambda spec: spec.rivals, lambda context, spec: context.rivals[..., None, :]
)


def width(parts: tuple[InputPart, ...], spec: Spec) -> int:
    """Width of all parts together."""
    return sum(part.size(spec) for part in parts)


def gather(parts: tuple[InputPart, ...], context: Context, spec: Spec) -> tuple[Array, ...]:
    """The arrays of all parts."""
    return tuple(part.read(context, spec) for part in parts)

"""Inputs of nets: each `InputPart` reads an array `[T,B,N or 1,F]` from instants of the stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..types import Box, Discrete, MultiDiscrete, Spec, View


class Context(NamedTuple):
    """Some instants of one team's stream, with the actions before and at them."""

    view: View  # every field [T,B,…]
    # [T,B,N,A] the action before each instant, zeros where an episode opens; width 0 if no net
    # reads it
    last: Array
    action: Any = None  # [T,B,N,A] the action at each instant, as nets read it, if known
    rivals: Any = None  # [T,B,M] the other teams' actions at each instant, if known
    acts: Any = None  # [T,B,N] bool: agents whose action counts; only while agents decide
    which: Any = None  # [T,B,N] int: the policy that each agent plays, where it has several


class InputPart(NamedTuple):
    """One input of a net: its width, and how to read it from a `Context`."""

    size: Callable[[Spec], int]
    read: Callable[[Context, Spec], Array]
    last: bool = False  # it reads previous actions
    mates: bool = False  # to act, an agent needs it of its teammates


def as_input(action: Array, spec: Spec, agent: Array | None = None) -> Array:
    """Encode an action `[…,N,A]` for nets: one-hot, or scaled from its bounds to [-1,1].

    A dimension whose bounds are equal becomes 0. With `agent`, the action is of that agent alone.
    """
    if isinstance(spec.action, Discrete):
        return jax.nn.one_hot(action, spec.action.n)
    if isinstance(spec.action, MultiDiscrete):
        parts = [jax.nn.one_hot(action[..., i], n) for i, n in enumerate(spec.action.parts)]
        return jnp.concatenate(parts, -1)
    middle, half = (own(bound, agent) for bound in bounds(spec.action))
    return jnp.where(half > 0, (action - middle) / jnp.where(half > 0, half, 1.0), 0.0)


def as_action(unit: Array, spec: Spec) -> Array:
    """Decode a net's action into the game's: the reverse of `as_input`."""
    if isinstance(spec.action, Discrete):
        return jnp.argmax(unit, -1)
    assert isinstance(spec.action, Box)  # no algorithm decodes actions of several parts
    middle, half = bounds(spec.action)
    return middle + half * unit


def bounds(space: Box) -> tuple[Array, Array]:
    """Middle and half width of every dimension, `[A]` or `[N,A]`.

    Bounds are halved before they are added: their sum may overflow.
    """
    low = jnp.asarray(space.low) / 2
    high = jnp.asarray(space.high) / 2
    return high + low, high - low


def own(rows: Array, agent: Array | None) -> Array:
    """One agent's row `[1,A]` of `[N,A]`; without `agent`, or where all share `[A]`, everything."""
    if agent is None or rows.ndim < 2:
        return rows
    return jax.lax.dynamic_slice_in_dim(rows, agent, 1)


def _joint(context: Context, spec: Spec) -> Array:
    """All agents' actions joined."""
    rows = _rows(context.action)
    return rows.reshape(*rows.shape[:-2], -1)


def _rows(action: Array) -> Array:
    """A joint action for every agent that looks: `[T,B,1,N,A]`, or `[T,B,N,N,A]` if it has that."""
    return action if action.ndim == 5 else action[..., None, :, :]


def _others(context: Context, spec: Spec) -> Array:
    others = _rows(context.action) * (1 - jnp.eye(spec.n))[:, :, None]
    return others.reshape(*others.shape[:-2], -1)


def _mean_action(context: Context, spec: Spec) -> Array:
    """Mean previous action of the team's other living agents; zeros if there are none.

    An agent that died in the last step no longer counts. Who lives now is known both when acting
    and at the first instant of a drawn window; who lived before is not. The mean is the sum minus
    the agent's own action, so the cost grows with agents, not with pairs.
    """
    here = context.view.alive[..., None]
    done = jnp.where(here, context.last, 0.0)
    others = here.sum(-2, keepdims=True) - here
    return (done.sum(-2, keepdims=True) - done) / jnp.maximum(others, 1)


def _others_obs(context: Context, spec: Spec) -> Array:
    """The others' observations, in the order of the team, beginning with the next agent's."""
    obs = context.view.obs
    agents = np.arange(spec.n)[:, None]
    others = obs[..., (agents + agents.T[:, 1:]) % spec.n, :]
    return others.reshape(*obs.shape[:-1], -1)


OBS = InputPart(lambda spec: spec.obs, lambda context, spec: context.view.obs)
OTHERS_OBS = InputPart(lambda spec: (spec.n - 1) * spec.obs, _others_obs)
STATE = InputPart(lambda spec: spec.state, lambda context, spec: context.view.state[..., None, :])
ID = InputPart(lambda spec: spec.n, lambda context, spec: jnp.eye(spec.n)[None, None])
LAST_ACTION = InputPart(
    lambda spec: spec.action.size, lambda context, spec: context.last, last=True
)
MEAN_ACTION = InputPart(lambda spec: spec.action.size, _mean_action, last=True, mates=True)
ACTION = InputPart(lambda spec: spec.action.size, lambda context, spec: context.action)
OTHERS_ACTION = InputPart(lambda spec: spec.n * spec.action.size, _others)
JOINT_ACTION = InputPart(lambda spec: spec.n * spec.action.size, _joint)
RIVALS_ACTION = InputPart(
    lambda spec: spec.rivals, lambda context, spec: context.rivals[..., None, :]
)


def heard(near: float, position: tuple[int, ...]) -> InputPart:
    """Whom each agent hears, for torsos that communicate: `[T,B,N or 1,N]`, 1 or 0.

    These are the living; with `near`, only those at most so far away. `position` are the numbers of
    an observation that are the agent's own place. No layer reads this part: it has no width.
    """

    def read(context: Context, spec: Spec) -> Array:
        alive = context.view.alive[..., None, :]
        return (alive & _near(context, near, position) if near else alive).astype(jnp.float32)

    return InputPart(lambda spec: 0, read, mates=True)


def mean_action(near: float, position: tuple[int, ...]) -> InputPart:
    """`MEAN_ACTION` over agents that are at most so far away, as `heard` knows them."""

    def read(context: Context, spec: Spec) -> Array:
        others = context.view.alive[..., None, :] & ~jnp.eye(spec.n, dtype=bool)
        others = (others & _near(context, near, position)).astype(jnp.float32)
        return others @ context.last / jnp.maximum(others.sum(-1, keepdims=True), 1)

    return InputPart(lambda spec: spec.action.size, read, last=True, mates=True)


def _near(context: Context, near: float, position: tuple[int, ...]) -> Array:
    """`[T,B,N,N]` bool: agents at most so far from each agent."""
    place = context.view.obs[..., jnp.asarray(position)].astype(jnp.float32)
    away = jnp.square(place[..., :, None, :] - place[..., None, :, :]).sum(-1)
    return away <= near**2


def width(parts: tuple[InputPart, ...], spec: Spec) -> int:
    """Total width of all parts."""
    return sum(part.size(spec) for part in parts)


def observed(parts: tuple[InputPart, ...], spec: Spec) -> tuple[int, ...]:
    """Indices of the parts that are observations, or a state that joins them."""
    found = (OBS, OTHERS_OBS, *((STATE,) if spec.joined else ()))
    return tuple(i for i, part in enumerate(parts) if part in found)


def gather(parts: tuple[InputPart, ...], context: Context, spec: Spec) -> tuple[Array, ...]:
    """Read the arrays of all parts."""
    return tuple(part.read(context, spec) for part in parts)

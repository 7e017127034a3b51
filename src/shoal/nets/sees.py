"""What a net is shown: each name maps instants of the stream to an input part `[T,B,N or 1,F]`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ..types import Discrete, Spec, View


class Scene(NamedTuple):
    """Some instants of one team's stream, with what was done at and before them."""

    view: View  # every field [T,B,…]
    last: Array  # [T,B,N,A] the action before each instant, zeros where an episode opens; width 0 if not asked for
    action: Any = None  # [T,B,N] or [T,B,N,A] the action at each instant, where it is known


class See(NamedTuple):
    size: Callable[[Spec], int]
    read: Callable[[Scene, Spec], Array]


def as_input(action: Array, spec: Spec) -> Array:
    """An action as nets read it: one-hot, or the real vector itself."""
    return jax.nn.one_hot(action, spec.action.n) if isinstance(spec.action, Discrete) else action


def _others(scene: Scene, spec: Spec) -> Array:
    joint = as_input(scene.action, spec)[..., None, :, :]
    others = joint * (1 - jnp.eye(spec.n))[:, :, None]
    return others.reshape(*others.shape[:-2], -1)


OBS = See(lambda spec: spec.obs, lambda scene, spec: scene.view.obs)
STATE = See(lambda spec: spec.state, lambda scene, spec: scene.view.state[..., None, :])
ID = See(lambda spec: spec.n, lambda scene, spec: jnp.eye(spec.n)[None, None])
LAST_ACTION = See(lambda spec: spec.action.size, lambda scene, spec: scene.last)
OTHERS_ACTION = See(lambda spec: spec.n * spec.action.size, _others)


def width(sees: tuple[See, ...], spec: Spec) -> int:
    """Width of all parts together."""
    return sum(see.size(spec) for see in sees)


def look(sees: tuple[See, ...], scene: Scene, spec: Spec) -> tuple[Array, ...]:
    """The parts themselves."""
    return tuple(see.read(scene, spec) for see in sees)

"""Finished policies that play for one team together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from ...types import Clock, Decision, Spec, View
from ..base import Algorithm
from .random import Fixed


class CastPolicy(NamedTuple):
    """One policy of a cast."""

    weights: Any
    clock: Clock  # at which its training ended


class Cast(Fixed[None, tuple[CastPolicy, ...], tuple[Any, ...]]):
    """Every agent acts as one of several policies decides; `seats` says which, by agent.

    Each policy decides for the whole team, as it did when it was trained.
    """

    name = "cast"

    def __init__(self, spec: Spec, policies: Sequence[Algorithm], seats: Sequence[int]):
        super().__init__(None, spec)
        self.policies = tuple(policies)
        self.seats = tuple(seats)

    def carry(self, learner: tuple[CastPolicy, ...], games: int) -> tuple[Any, ...]:
        return tuple(
            policy.carry(part.weights, games)
            for policy, part in zip(self.policies, learner, strict=True)
        )

    def act(
        self,
        learner: tuple[CastPolicy, ...],
        key: Array,
        view: View,
        carry: tuple[Any, ...],
        clock: Clock,
        greedy: bool,
    ) -> Decision:
        keys = jax.random.split(key, len(self.policies))
        decisions = [
            policy.act(part.weights, k, view, own, part.clock, greedy)
            for policy, part, k, own in zip(self.policies, learner, keys, carry, strict=True)
        ]
        action = jnp.stack(
            [decisions[seat].action[:, agent] for agent, seat in enumerate(self.seats)], axis=1
        )
        return Decision(action, tuple(decision.carry for decision in decisions), ())

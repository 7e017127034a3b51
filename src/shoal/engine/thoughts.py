"""What policies think: preferences among actions, and the return they expect."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from ..algorithms.base import PROBABILITIES, Algorithm
from ..types import Clock, View


class Thoughts(NamedTuple):
    """Of a team at one instant; a part is None where its algorithm has no such thing."""

    preferences: Array | None  # [B,N,A] probabilities or utilities; -inf where an action is illegal
    values: Array | None  # [B,N] expected return


def think(
    algorithms: dict[str, Algorithm],
    learners: dict[str, Any],
    clock: Clock,
    views: dict[str, View],
    carries: dict[str, Any],
) -> dict[str, Thoughts]:
    """Every team's thoughts at one instant."""
    found = {}
    for team, algorithm in algorithms.items():
        about = (learners[team], views[team], carries[team], clock)
        logits = algorithm.logits(*about)
        if logits is not None:
            plain = jnp.exp(logits) if algorithm.prefers == PROBABILITIES else logits
            logits = jnp.where(views[team].legal, plain, -jnp.inf)
        found[team] = Thoughts(logits, algorithm.values(*about))
    return found

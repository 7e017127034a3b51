"""What the loop asks of an algorithm; everything else is the algorithm's own."""

from __future__ import annotations

from typing import Any, ClassVar

from jax import Array

from ..nets.layers import Rng
from ..types import Box, Clock, Decision, Discrete, ShoalError, Space, Spec, View, Window

Metrics = dict[str, Array]


class Algorithm:
    """One team's policy and how it learns."""

    name: ClassVar[str]
    Config: ClassVar[type]
    spaces: ClassVar[tuple[type[Space], ...]] = (Discrete, Box)

    def __init__(self, config: Any, spec: Spec):
        if not isinstance(spec.action, self.spaces):
            kinds = " and ".join(kind.__name__ for kind in self.spaces)
            raise ShoalError(
                f"{self.name} plays {kinds} actions, but this game's are {type(spec.action).__name__}:"
                " choose another algorithm or other actions"
            )
        self.config, self.spec = config, spec

    def check(self, games: int, window: int) -> None:
        """Refuse a window of that many games, on one device, that it could not learn from."""

    def protocol(self) -> dict[str, Any]:
        """What a reader of its scores must know."""
        return {"reward": "unused", "updates_per_step": 0}  # how often a step enters a gradient update

    def init(self, rng: Rng) -> Any:
        """The learner: parameters, targets, optimisers, normalisers."""
        raise NotImplementedError

    def carry(self, learner: Any, games: int) -> Any:
        """What the policy remembers before its first view."""
        raise NotImplementedError

    def act(self, learner: Any, key: Array, view: View, carry: Any, clock: Clock, greedy: bool) -> Decision:
        """Decide for every agent of every game."""
        raise NotImplementedError

    def memory(self, learner: Any, games: int) -> Any:
        """The empty memory."""
        raise NotImplementedError

    def remember(self, memory: Any, window: Window) -> Any:
        """Take a window in."""
        raise NotImplementedError

    def learn(self, learner: Any, memory: Any, key: Array, clock: Clock) -> tuple[Any, Any, Metrics]:
        """Update from memory."""
        raise NotImplementedError

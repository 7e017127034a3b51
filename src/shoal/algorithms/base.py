"""What the loop asks of an algorithm; everything else is the algorithm's own."""

from __future__ import annotations

from typing import Any, ClassVar

from jax import Array

from ..errors import ShoalError
from ..nets.layers import Rng
from ..types import Box, Clock, Decision, Discrete, Fit, Results, Share, Space, Spec, View, Window

Metrics = dict[str, Array]


class Algorithm:
    """One team's policy and how it learns."""

    name: ClassVar[str]
    Config: ClassVar[type]
    spaces: ClassVar[tuple[type[Space], ...]] = (Discrete, Box)
    sees_state: bool = False
    sees_mates: bool = False  # when acting: what other members of its team did
    family: ClassVar[str] = ""  # of algorithms whose nets mean the same
    inherits: ClassVar[tuple[str, ...]] = ()  # fields of its learner that a run may start from

    def __init__(self, config: Any, spec: Spec):
        if not isinstance(spec.action, self.spaces):
            kinds = " and ".join(kind.__name__ for kind in self.spaces)
            raise ShoalError(
                f"{self.name} plays {kinds} actions, but this game's are"
                f" {type(spec.action).__name__}:"
                " choose another algorithm or other actions"
            )
        self.config = config
        self.spec = spec

    def join(self, team: str, everybody: dict[str, Algorithm], games: int, origin: Any) -> None:
        """Take a team's place in a run of so many games, knowing who else plays; `origin` as in the
        saved config."""

    def origin(self) -> Any:
        """What must be saved, as JSON, beside its config to make it again; None if its config says
        all."""
        return None

    def check(self, share: Share) -> None:
        """Refuse a share of the run that it could not learn from."""

    @classmethod
    def suited(cls, config: Any, share: Share) -> list[Fit]:
        """What would fit that share where the config does not, for options that nobody asked
        for."""
        return []

    def protocol(self, share: Share) -> dict[str, Any]:
        """What a reader of its scores must know."""
        # how often a step enters a gradient update
        return {"reward": "unused", "updates_per_step": 0}

    def init(self, rng: Rng) -> Any:
        """The learner: parameters, targets, optimisers, normalisers."""
        raise NotImplementedError

    def carry(self, learner: Any, games: int) -> Any:
        """What the policy remembers before its first view."""
        raise NotImplementedError

    def act(
        self, learner: Any, key: Array, view: View, carry: Any, clock: Clock, greedy: bool
    ) -> Decision:
        """Decide for every agent of every game."""
        raise NotImplementedError

    def acting(self, learner: Any) -> Any:
        """The learner without what only learning needs, for those who keep copies of it."""
        return learner

    def memory(self, learner: Any, share: Share) -> Any:
        """The empty memory."""
        raise NotImplementedError

    def remember(self, memory: Any, window: Window) -> Any:
        """Take a window in."""
        raise NotImplementedError

    def learn(
        self, learner: Any, memory: Any, key: Array, clock: Clock
    ) -> tuple[Any, Any, Metrics]:
        """Update from memory."""
        raise NotImplementedError

    def meet(self, learner: Any, learners: dict[str, Any], results: Results) -> tuple[Any, Metrics]:
        """After an iteration: look at everybody's learners and results, as an opponent made of
        others does."""
        return learner, {}

    def keep(self, learner: Any, carry: Any) -> Any:
        """After that: what it goes on remembering of the games under way."""
        return carry


def divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is not larger."""
    return next(count for count in range(min(most, number), 0, -1) if number % count == 0)


def positive(config: Any, *fields: str) -> None:
    """Refuse settings that are not greater than 0."""
    for field in fields:
        if getattr(config, field) <= 0:
            raise ShoalError(f"{field} must be greater than 0, not {getattr(config, field)}")


def at_most(config: Any, most: int, *fields: str) -> None:
    """Refuse settings that are larger."""
    for field in fields:
        if getattr(config, field) > most:
            raise ShoalError(f"{field} must be at most {most:,}, not {getattr(config, field)}")


def not_negative(config: Any, *fields: str) -> None:
    """Refuse settings below 0."""
    for field in fields:
        if getattr(config, field) < 0:
            raise ShoalError(f"{field} must not be negative, not {getattr(config, field)}")


def fraction(config: Any, *fields: str) -> None:
    """Refuse settings that do not lie between 0 and 1."""
    for field in fields:
        if not 0 <= getattr(config, field) <= 1:
            raise ShoalError(f"{field} must lie between 0 and 1, not {getattr(config, field)}")

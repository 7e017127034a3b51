"""The interface between the loop and an algorithm."""

from __future__ import annotations

from typing import Any, ClassVar, Generic

from jax import Array
from typing_extensions import TypeVar

from ..errors import ShoalError
from ..nets.layers import Rng
from ..types import (
    Box,
    Clock,
    Decision,
    Discrete,
    Fit,
    Results,
    Share,
    Space,
    Spec,
    TeamProtocol,
    View,
    Window,
)

Metrics = dict[str, Array]
ConfigT = TypeVar("ConfigT", default=Any)
LearnerT = TypeVar("LearnerT", default=Any)
MemoryT = TypeVar("MemoryT", default=Any)
CarryT = TypeVar("CarryT", default=Any)


PROBABILITIES = "probabilities"
UTILITIES = "utilities"


class Algorithm(Generic[ConfigT, LearnerT, MemoryT, CarryT]):
    """One team's policy, and how it learns.

    Generic in its config, an instance of `Config`; its learner; its memory; and its carry, which
    the policy keeps from step to step. The last three are pytrees, opaque to the loop. Every leaf
    of a carry begins with the axis of games.
    """

    name: ClassVar[str]
    Config: ClassVar[type[Any]]
    spaces: ClassVar[tuple[type[Space], ...]] = (Discrete, Box)
    sharing: ClassVar[tuple[str, ...]] = ()  # of parameters it supports: shared, own, partition
    recurrence: ClassVar[bool] = False  # whether its torso may be recurrent
    needs_training: ClassVar[bool] = True  # whether it must train before it can play
    # whether it may learn from a window that was played before its last update
    bears_staleness: ClassVar[bool] = True
    sees_state: bool = False
    central_execution: ClassVar[bool] = False  # acting takes what all agents of a team observe
    sees_mates: bool = False  # when acting, an agent needs what its teammates observe, say or did
    prefers: str = PROBABILITIES  # meaning of `logits`: log-probabilities or utilities
    family: ClassVar[str] = ""  # algorithms of one family can exchange nets
    inherits: ClassVar[tuple[str, ...]] = ()  # fields of the learner that a new run may start from

    def __init__(self, config: ConfigT, spec: Spec):
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
        """Take a team's place in a run of `games` games; `everybody` holds all algorithms by team.

        `origin` is what `origin()` returned when the run was saved; None in a new run.
        """

    def origin(self) -> Any:
        """JSON needed beside the config to create this algorithm again; None if nothing is."""
        return None

    def check(self, share: Share) -> None:
        """Raise an error if it cannot learn from this share of the run."""

    @classmethod
    def suited(cls, config: ConfigT, share: Share) -> list[Fit]:
        """Values for options whose defaults do not suit this share."""
        return []

    def protocol(self, share: Share) -> TeamProtocol:
        """Facts of training that a reader of this team's scores needs."""
        return {"reward": "unused", "updates_per_step": 0}

    def init(self, rng: Rng) -> LearnerT:
        """The learner: parameters, targets, optimisers, normalisers."""
        raise NotImplementedError

    def carry(self, learner: LearnerT, games: int) -> CarryT:
        """The initial carry."""
        raise NotImplementedError

    def act(
        self, learner: LearnerT, key: Array, view: View, carry: CarryT, clock: Clock, greedy: bool
    ) -> Decision:
        """Decide for every agent of every game."""
        raise NotImplementedError

    def logits(self, learner: LearnerT, view: View, carry: CarryT, clock: Clock) -> Array | None:
        """`[B,N,A]` what a greedy agent maximises over its legal actions, such as log-probabilities
        or utilities; None where there is no such thing."""
        return None

    def values(self, learner: LearnerT, view: View, carry: CarryT, clock: Clock) -> Array | None:
        """`[B,N]` the return that each agent expects of greedy play from here on.

        None if that takes more than a view, or if the learner holds only what acts."""
        return None

    def acting(self, learner: LearnerT) -> LearnerT:
        """The learner reduced to what acting needs, for copies of it."""
        return learner

    def memory(self, learner: LearnerT, share: Share) -> MemoryT:
        """An empty memory."""
        raise NotImplementedError

    def remember(self, memory: MemoryT, window: Window) -> MemoryT:
        """Add a window to the memory."""
        raise NotImplementedError

    def learn(
        self, learner: LearnerT, memory: MemoryT, key: Array, clock: Clock
    ) -> tuple[LearnerT, MemoryT, Metrics]:
        """Update the learner from the memory."""
        raise NotImplementedError

    def observe(
        self, learner: LearnerT, window: Window, key: Array, clock: Clock
    ) -> tuple[LearnerT, Metrics]:
        """Read the window just played, after learning, as curiosity does."""
        return learner, {}

    def meet(
        self, learner: LearnerT, learners: dict[str, Any], results: Results
    ) -> tuple[LearnerT, Metrics]:
        """Read all teams' learners and results after an iteration, as self-play does."""
        return learner, {}

    def keep(self, learner: LearnerT, carry: CarryT) -> CarryT:
        """The carry to continue with after `meet`."""
        return carry


def divisor(number: int, most: int) -> int:
    """The largest divisor of `number` that is at most `most`."""
    return next(count for count in range(min(most, number), 0, -1) if number % count == 0)


def positive(config: object, *fields: str) -> None:
    """Refuse settings that are not greater than 0."""
    for field in fields:
        value = getattr(config, field)
        if value <= 0:
            raise ShoalError(f"{field} must be greater than 0, not {value!r}")


def at_most(config: object, most: int, *fields: str) -> None:
    """Refuse settings above `most`."""
    for field in fields:
        value = getattr(config, field)
        if value > most:
            raise ShoalError(f"{field} must be at most {most:,}, not {value!r}")


def not_negative(config: object, *fields: str) -> None:
    """Refuse settings below 0."""
    for field in fields:
        value = getattr(config, field)
        if value < 0:
            raise ShoalError(f"{field} must not be negative, not {value!r}")


def fraction(config: object, *fields: str) -> None:
    """Refuse settings that do not lie between 0 and 1."""
    for field in fields:
        value = getattr(config, field)
        if not 0 <= value <= 1:
            raise ShoalError(f"{field} must lie between 0 and 1, not {value!r}")

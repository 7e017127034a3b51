"""A finished run's policy, as an opponent that learns no more."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, NamedTuple

from jax import Array

from ...errors import ShoalError, did_you_mean
from ...nets.layers import Blank, Rng, outline
from ...types import Clock, Decision, Share, Spec, View
from ..base import Algorithm
from .random import Fixed, Nothing


class Finished(NamedTuple):
    """A finished run, reduced to what its policies need to play."""

    env: str
    algorithms: dict[str, Algorithm]  # by team
    # by team, what acting needs; None if the run has gone or changed since it was frozen
    learners: dict[str, Any] | None
    clock: Clock
    origin: dict[str, Any]  # JSON to save with any run that this one plays in


@dataclass(frozen=True)
class FrozenConfig:
    """Whose policy it is."""

    run: str = ""
    """Folder of the finished run, of its best policy or of a checkpoint."""
    team: str = ""
    """Team of that run to take; empty takes the one of the same name, or the only one."""
    greedy: bool = True
    """Always play the most likely actions; without it always sampled ones, in evaluations too."""


class Frozen(Fixed[FrozenConfig, Any, Any]):
    """Plays one team's policy of a finished run, as it was when that run ended.

    Its weights are saved with every run it plays in, and what they belong to in that run's config
    (`origin`): so such a run is played again without the folder the policy came from.
    """

    name = "frozen"
    Config = FrozenConfig

    def join(self, team: str, everybody: dict[str, Algorithm], games: int, origin: Any) -> None:
        run = self.config.run
        if not run:
            raise ShoalError(
                f"frozen needs the folder of a finished run: write"
                f" frozen:runs/my-run for team {team!r}"
            )
        finished = _read(run, origin)
        taken = _pick(finished.algorithms, self.config.team, team, run)
        self.player = finished.algorithms[taken]
        self.clock = finished.clock
        learners = finished.learners
        if learners is not None and taken not in learners:
            raise ShoalError(f"{run} has no policy of team {taken!r}: it was saved without it")
        self.weights = None if learners is None else self.player.acting(learners[taken])
        self._origin = finished.origin
        wrong = why_incompatible(self.spec, self.player.spec)
        if wrong:
            raise ShoalError(
                f"{run} cannot play for team {team!r}: its team {taken!r}, trained on"
                f" {finished.env}, {wrong}"
            )

    @property
    def sees_mates(self) -> bool:
        return self.player.sees_mates

    def origin(self) -> dict[str, Any]:
        return self._origin

    def init(self, rng: Rng) -> Any:
        """The weights; only shapes if the run has gone, to be filled from a checkpoint."""
        if self.weights is not None:
            return self.weights
        if isinstance(rng, Blank):
            return self.player.acting(self.player.init(rng))
        return self.player.acting(outline(self.player.init))

    def carry(self, learner: Any, games: int) -> Any:
        return self.player.carry(learner, games)

    def act(
        self, learner: Any, key: Array, view: View, carry: Any, clock: Clock, greedy: bool
    ) -> Decision:
        decision = self.player.act(learner, key, view, carry, self.clock, self.config.greedy)
        return decision._replace(record=())

    def logits(self, learner: Any, view: View, carry: Any, clock: Clock) -> Array | None:
        return self.player.logits(learner, view, carry, self.clock)

    def values(self, learner: Any, view: View, carry: Any, clock: Clock) -> Array | None:
        return self.player.values(learner, view, carry, self.clock)

    @property
    def prefers(self) -> str:
        return self.player.prefers

    def acting(self, learner: Any) -> Any:
        return self.player.acting(learner)

    def memory(self, learner: Any, share: Share) -> Nothing:
        if self.weights is None:
            raise ShoalError(
                f"{self.config.run} has gone or changed since it was frozen: put it back, or"
                f" freeze another"
            )
        return ()


def _read(run: str, origin: Any) -> Finished:
    """Read a finished run.

    Imported here, not above: the store imports the algorithms.
    """
    from ...store.policy_store import finished

    return finished(run, origin)


def _pick(there: Collection[str], wanted: str, team: str, run: str) -> str:
    """Choose one of the finished run's teams."""
    taken = wanted or (next(iter(there)) if len(there) == 1 else team)
    if taken not in there:
        hint = did_you_mean(taken, there) if wanted else ""
        raise ShoalError(
            f"{run} has no team {taken!r}{hint}: set team to one of {', '.join(there)}"
        )
    return taken


FACTS: tuple[tuple[str, Callable[[Spec], Any]], ...] = (  # what a policy depends on
    ("has {} agents", lambda spec: spec.n),
    ("observes {} numbers", lambda spec: _sizes(spec.obs_sizes, spec.obs, spec)),
    ("observes images of {}", lambda spec: spec.pixels),
    ("has actions {}", lambda spec: spec.action),
    ("has {} actions", lambda spec: _sizes(spec.action_sizes, spec.action.size, spec)),
)


def why_incompatible(spec: Spec, other: Spec) -> str:
    """Say why a policy of `other` cannot play for `spec`; empty if it can."""
    wrong = ((words, fact(other), fact(spec)) for words, fact in FACTS if fact(other) != fact(spec))
    return next((f"{words.format(theirs)}, not {mine}" for words, theirs, mine in wrong), "")


def _sizes(each: tuple[int, ...], common: int, spec: Spec) -> Any:
    """One size if all agents have the same, else one for each."""
    sizes = each or (common,) * spec.n
    return sizes if len(set(sizes)) > 1 else sizes[0]

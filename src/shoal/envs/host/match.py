"""The interface of a game on the host: one match, in plain Python and numpy."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np

from ...errors import ShoalError
from ...types import Spec
from ..metrics import checked

LARGEST = float(np.finfo(np.float32).max)


class TeamStep(NamedTuple):
    """What one team receives at one instant of one match: a `View` without the games axis."""

    obs: np.ndarray  # [N,F] float32, or uint8 for images
    legal: np.ndarray  # [N,A] bool
    alive: np.ndarray  # [N] bool
    reward: np.ndarray  # [N] float32
    discount: np.ndarray  # [N] float32


class MatchStep(NamedTuple):
    """One instant of a match."""

    teams: dict[str, TeamStep]
    state: np.ndarray  # [S] float32
    over: bool  # whether the episode ends with this instant


class Match(Protocol):
    """One game on the host.

    A match with metrics also has `metrics`, their names, and `episode_metrics()`, which returns a
    number by name and is called at the instant that ends an episode.
    """

    teams: dict[str, Spec]

    def reset(self, seed: int) -> MatchStep:
        """Open an episode; equal seeds open equal episodes."""
        ...

    def step(self, actions: dict[str, np.ndarray]) -> MatchStep:
        """Advance by the actions of all agents, by team.

        `[N]` int32 (Discrete), `[N,P]` int32 (MultiDiscrete) or `[N,A]` float32 (Box).
        """
        ...

    def render(self) -> np.ndarray:
        """A picture of this instant, `[H,W,3]` uint8; only for a match opened to render."""
        ...

    def close(self) -> None:
        """Free its resources."""
        ...


class Lineup(NamedTuple):
    """Teams and metrics of an environment, equal in every match."""

    teams: dict[str, Spec]  # by name
    metrics: tuple[str, ...]  # names


class Broken(Exception):
    """Raised when a match breaks the contract; the message names the rule and the agent."""


class Mismatch(ShoalError):
    """Raised when a match has other teams or metrics than expected."""


@dataclass(frozen=True)
class Hosted:
    """An environment on the host by its id: its teams, its metrics, and how to open a match."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    # the teams, if known already
    specs: dict[str, Spec] | None = field(default=None, compare=False)
    draws: bool = False  # open matches that can render
    # whether to find out the teams in a watched process
    watched: bool = field(default=False, compare=False)
    patience: float = field(default=60.0, compare=False)  # seconds to find out the teams
    # the metrics, if known already; none if only the teams are known
    metric_names: tuple[str, ...] | None = field(default=None, compare=False)

    @cached_property
    def teams(self) -> dict[str, Spec]:
        return self.specs or self._lineup.teams

    @cached_property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics of an episode."""
        if self.metric_names is None and not self.specs:
            return self._lineup.metrics
        return self.metric_names or ()

    @cached_property
    def _lineup(self) -> Lineup:
        return self.try_out()

    def try_out(self) -> Lineup:
        """Open a match, render it if it `draws`, and close it; return its teams and metrics."""
        from .watched import probe

        if self.watched:
            return probe(self.name, self.options, self.patience, self.draws)
        match = self.open()
        try:
            return self.seen(match)
        finally:
            close(match)

    @property
    def stateless(self) -> Hosted:
        """This environment without a state, which may be slow to compute."""
        return replace(
            self,
            options=self.options | {"state": None},
            specs=_stateless(self.teams),
            metric_names=self.metrics,
        )

    def open(self) -> Match:
        """Open a match; its teams must equal those known already."""
        from ..adapters import open_match

        match = open_match(self.name, self.options, self.draws)
        if self.specs:
            self._compare(match)
        return match

    def seen(self, match: Match) -> Lineup:
        """Teams and metrics of a match.

        Raises an error if it has no observations, or must render and cannot.
        """
        for team, spec in match.teams.items():
            if not spec.obs:
                raise ShoalError(
                    f"{self.name} shows team {team!r} nothing at all (observations of size 0):"
                    " give its agents at least one number to see, such as a 0"
                )
        if self.draws:
            try:
                match.reset(0)
                match.render()
            except Exception as error:
                what = (
                    str(error)
                    if isinstance(error, Broken | ShoalError)
                    else f"{type(error).__name__}: {error}"
                )
                raise ShoalError(f"{self.name} cannot be drawn: {what}") from error
        return Lineup(match.teams, checked(_metrics(match), match.teams, self.name))

    def _compare(self, match: Match) -> None:
        found = _stateless(match.teams) if self.options.get("state", True) is None else match.teams
        what = why_unequal(self.teams, found) or _missing(self.metrics, _metrics(match))
        if what:
            close(match)
            raise Mismatch(
                f"{self.name} is not the same each time it is made: {what}; agents, their order"
                " and their spaces must be fixed (a set has no order)"
            )


def close(match: Match) -> None:
    """Close a match that may be broken; ignore its errors."""
    with contextlib.suppress(Exception, SystemExit):
        match.close()


def measured(match: Match, names: Sequence[str]) -> list[float]:
    """Metrics of the episode that has just ended, in the order of `names`."""
    if not names:
        return []
    if not callable(getattr(match, "episode_metrics", None)):
        raise Broken("it declares metrics and has no episode_metrics(): write one")
    said = match.episode_metrics()  # type: ignore[attr-defined]
    if not isinstance(said, Mapping):
        raise Broken(f"episode_metrics must give a dictionary by name, not {said!r}"[:300])
    return [_measured(said, name) for name in names]


def _measured(said: Mapping[str, Any], name: str) -> float:
    if name not in said:
        raise Broken(
            f"the metric {name!r} was declared and is missing at the end of an episode:"
            " let episode_metrics return it"
        )
    value = np.asarray(said[name])
    if value.size != 1 or value.dtype.kind not in "biuf":
        raise Broken(f"the metric {name!r} must be one number, not {said[name]!r}"[:300])
    number = float(value.item())
    if not abs(number) <= LARGEST:
        raise Broken(f"the metric {name!r} is not finite, or too large: {number}")
    return number


def _metrics(match: Match) -> Any:
    """The names of metrics that a match declares, if any."""
    return getattr(match, "metrics", ())


def _missing(agreed: Sequence[str], found: Sequence[str]) -> str:
    """Say which expected metric is missing; there may be new ones."""
    missing = [name for name in agreed if name not in found]
    return f"the metric {missing[0]!r} is missing now" if missing else ""


def why_unequal(agreed: dict[str, Spec], found: dict[str, Spec]) -> str:
    """The first difference between expected teams and those found; empty if there is none."""
    if list(agreed) != list(found):
        return f"it has the teams {', '.join(found)}, where it had {', '.join(agreed)}"
    for team, spec in agreed.items():
        # fields that are not compared may be missing in older runs
        for fact in (each for each in fields(spec) if each.compare):
            name = fact.name
            told = getattr(spec, fact.name)
            now = getattr(found[team], fact.name)
            if now != told:
                return (
                    f"team {team!r} has the {FACTS.get(name, name)} {_told(now)}, where it had"
                    f" {_told(told)}"
                )
    return ""


FACTS = {  # user-facing names of a spec's fields
    "obs": "observation size",
    "state": "state size",
    "action": "action space",
    "obs_sizes": "observation sizes",
    "action_sizes": "action sizes",
    "rivals": "size of rivals' actions",
    "pixels": "image size",
    "joined": "joined state",
}


def _told(fact: Any) -> str:
    return (", ".join(map(str, fact)) or "none") if isinstance(fact, tuple) else str(fact)


def _stateless(teams: dict[str, Spec]) -> dict[str, Spec]:
    return {team: replace(spec, state=0, joined=False) for team, spec in teams.items()}


def to_json(teams: dict[str, Spec]) -> dict[str, Any]:
    """Teams as plain JSON values."""
    return {team: spec.to_json() for team, spec in teams.items()}


def from_json(plain: dict[str, Any]) -> dict[str, Spec]:
    """Teams from what `to_json` wrote."""
    return {team: Spec.from_json(spec) for team, spec in plain.items()}

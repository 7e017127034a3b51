"""An environment's own metrics: numbers about an episode, under declared names.

A metric belongs to the whole game, such as `won`, or to one team, such as `ally/won`. Nothing here
needs JAX.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from ..errors import ShoalError

WON = "won"  # whether the game, or a team, was won: 1 or 0
WORD = re.compile(r"\w[\w.-]*")
LONGEST = 60  # letters of a metric's word
MOST = 100  # metrics of one environment


def split(name: str) -> tuple[str, str]:
    """Split a metric's name into team ("" for the whole game) and word."""
    team, _, word = name.rpartition("/")
    return team, word


def meant(metric: str, names: Collection[str]) -> list[str]:
    """Names that a user's metric matches: the name itself, or every team's metric of that word."""
    return [metric] if metric in names else [name for name in names if split(name)[1] == metric]


def declared(env: Any) -> tuple[str, ...]:
    """Names of the metrics that an environment declares, if any."""
    names = getattr(env, "metrics", ())
    return checked(names, env.teams, env.name) if names else ()


def checked(names: Any, teams: Collection[str], env: str) -> tuple[str, ...]:
    """Return the names if they are valid and unique; else raise an error."""
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ShoalError(
            f"the metrics of {env} must be a tuple of names, such as ('won',), not {names!r}"
        )
    if len(names) > MOST:
        raise ShoalError(f"{env} declares {len(names)} metrics: declare at most {MOST}")
    for name in names:
        team, word = split(name)
        if not WORD.fullmatch(word) or len(word) > LONGEST or name.startswith("/"):
            raise ShoalError(
                f"{env} cannot have a metric {name!r}: call it by one word of letters, digits,"
                f" '_', '.' and '-', at most {LONGEST}, or <team>/<word>"
            )
        if team and team not in teams:
            raise ShoalError(
                f"the metric {name!r} of {env} is of no team: its teams are {', '.join(teams)}"
            )
        if name in teams:
            raise ShoalError(f"{env} has a team {name!r}: call the metric otherwise")
        if names.count(name) > 1:
            raise ShoalError(f"{env} declares the metric {name!r} twice: declare it once")
    return tuple(names)


def refuse_undeclared(said: Collection[str], names: Collection[str], env: str) -> None:
    """Raise an error unless exactly the declared metrics are given."""
    for name in said:
        if name not in names:
            known = ", ".join(names) or "none"
            raise ShoalError(
                f"{env} says the metric {name!r} and declares {known}: add it to its metrics"
            )
    for name in names:
        if name not in said:
            raise ShoalError(f"{env} declares the metric {name!r}: let episode_metrics say it")


def refuse_nonsense(said: Mapping[str, Any], env: str) -> None:
    """Raise an error if a metric is not finite; values are of one or several episodes."""
    for name, values in said.items():
        wrong = np.ravel(values)[~np.isfinite(np.ravel(values))]
        if wrong.size:
            raise ShoalError(
                f"the metric {name!r} of {env} was {wrong[0]:g} at the end of an episode:"
                f" let it be a finite number"
            )

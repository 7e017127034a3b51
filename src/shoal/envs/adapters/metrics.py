"""Metrics of an adapted environment: from its method `episode_metrics`, or from its last infos."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ...types import Spec
from ..host.match import Broken
from ..metrics import split
from .options import AdapterOptions

METHOD = "episode_metrics"
Infos = Mapping[Any, Mapping[str, Any]]  # by agent


class MetricReader:
    """Reads the metrics that `--env.metrics` asks for, or that the environment declares.

    A metric of the game is the mean over the agents whose infos have it; a team's metric is the
    mean over that team's agents.
    """

    def __init__(self, env: Any, options: AdapterOptions, teams: dict[str, Spec]):
        plain = getattr(env, "unwrapped", env)
        sayers = [one for one in (env, plain) if callable(getattr(one, METHOD, None))]
        self.say = getattr(sayers[0], METHOD) if sayers else dict
        own = {name: split(name)[1] for name in _declared(env) or _declared(plain)}
        self.chosen = options.asked is not None  # by the user, who may leave some out
        self.keys: dict[str, str] = own if options.asked is None else options.asked
        self.teams = teams

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.keys)

    def read(self, infos: Infos) -> dict[str, float]:
        """All metrics of the episode that has just ended."""
        said = self.say()
        if not isinstance(said, Mapping):
            raise Broken(f"{METHOD} must give a dictionary by name, not {said!r}"[:300])
        for name in said:
            if name not in self.keys and not self.chosen:
                raise Broken(f"{METHOD} says {name!r}, which is not declared: add it to metrics")
        return {name: said[name] if name in said else self._mean(name, infos) for name in self.keys}

    def _mean(self, name: str, infos: Infos) -> float:
        team, _ = split(name)
        key = self.keys[name]
        agents = [a for a in infos if not team or str(a) in self.teams[team].agents]
        values = [number(infos[a][key], name) for a in agents if key in infos[a]]
        if values:
            return float(np.mean(values))
        known = sorted({str(key) for agent in agents for key in infos[agent]})
        raise Broken(
            f"the metric {name!r} was declared, and no info says {key!r} at the end of an episode,"
            f" but {', '.join(known) or 'nothing'}"[:500]
        )


def number(value: Any, name: str) -> float:
    """Convert a value, also a numpy one, to a float."""
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf":
        raise Broken(f"the metric {name!r} must be one number, not {value!r}"[:300])
    return float(array.item())


def by_agent(info: Any, agents: Iterable[str]) -> Infos:
    """Turn one info for all agents into one for each.

    A value that is listed per agent is split.
    """
    agents = list(agents)
    if not isinstance(info, Mapping):
        return {}
    return {
        agent: {
            key: value[i] if np.ndim(value) == 1 and len(value) == len(agents) else value
            for key, value in info.items()
        }
        for i, agent in enumerate(agents)
    }


def _declared(env: Any) -> tuple[str, ...]:
    """The metrics that an environment declares; a `metrics` of another kind is ignored."""
    names = getattr(env, "metrics", ())
    plain = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    return tuple(names) if plain else ()

"""`--from`: start a run's nets with another run's weights.

Parameters, target networks and return statistics are copied, array by array, where name and shape
agree; optimisers, memories and counters start new. The other run's files are read as data:
nothing that they name is imported, and no environment is opened.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from .. import files
from ..algorithms import ALGORITHMS, ALIASES
from ..algorithms.base import Algorithm
from ..config.config import Config
from ..errors import ShoalError
from ..nets.layers import outline
from ..options import entry
from . import folder, policy_store

FEW = 3  # arrays that a message names
LEAST = 0.05  # least share of a team's parameters that must fit: some biases always do


class Start(NamedTuple):
    """The learners that a run starts with."""

    learners: dict[str, Any]
    sentences: list[str]  # by team: a message on what was copied
    about: dict[str, Any]  # the same facts, as JSON


class _Taken(NamedTuple):
    """The arrays that a team copies."""

    arrays: dict[str, np.ndarray]
    new: dict[str, str]  # arrays that start new, and why


def check(config: Config) -> None:
    """Refuse a run to start from if nothing of it fits."""
    if config.settings.from_run:
        begin(config, {team: outline(one.init) for team, one in config.algorithms.items()})


def begin(config: Config, fresh: dict[str, Any]) -> Start:
    """Copy the weights of the run to start from into `fresh` learners."""
    run = config.settings.from_run
    try:
        place, about, leaves = policy_store.saved(Path(run))
    except OSError as error:
        raise ShoalError(f"{run} cannot be read ({error.strerror})") from None
    with files.errors_name(place):
        teams = entry(entry(about, "config", dict), "teams", dict)
        names: dict[str, str] = {team: entry(one, "algorithm", str) for team, one in teams.items()}
        steps = entry(about, "steps", int)
    learners = dict(fresh)
    sentences = []
    facts = {}
    for team, algorithm in config.algorithms.items():
        if not algorithm.inherits:
            continue
        if team not in names:
            sentences.append(f"team {team} begins anew: {run} has no team of that name")
            continue
        # looked up by name, never imported, as the name comes from a file
        theirs = ALGORITHMS.get(ALIASES.get(names[team], names[team]))
        if theirs is not None and not theirs.inherits:
            sentences.append(f"team {team} begins anew: it played {names[team]} in {run}")
            continue
        _refuse_other_family(run, team, names[team], theirs, algorithm)
        _refuse_lost_statistics(run, team, fresh[team], _of(team, leaves))
        taken = _taken(algorithm, fresh[team], _of(team, leaves))
        learners[team] = _replaced(fresh[team], taken.arrays)
        sentences.append(_sentence(f"{run} ({names[team]} after {steps:,} steps)", team, taken))
        facts[team] = {"algorithm": names[team], "taken": len(taken.arrays), "new": [*taken.new]}
    if not any(one["taken"] for one in facts.values()):
        why = "; ".join(sentences) or f"no team of {config.label} on {config.env} can"
        raise ShoalError(f"nothing of {run} can be started from: {why}")
    return Start(learners, sentences, {"run": run, "steps": steps, "teams": facts})


def _refuse_other_family(
    run: str, team: str, name: str, theirs: type[Algorithm] | None, algorithm: Algorithm
) -> None:
    """Refuse weights of another family of algorithms: they mean something else."""
    if name == algorithm.name or (theirs is not None and theirs.family == algorithm.family):
        return
    raise ShoalError(
        f"{run} trained team {team!r} by {name}, whose nets mean something else than those of"
        f" {algorithm.name}: start from a run of {algorithm.name} or of an algorithm of its family"
    )


def _refuse_lost_statistics(run: str, team: str, fresh: Any, theirs: dict[str, np.ndarray]) -> None:
    """Refuse weights of nets that read observations by statistics which this run has not."""
    kind = "statistics/obs/"
    here = any(name.startswith(kind) for name in folder.leaves_by_name(fresh))
    if not here and any(name.startswith(kind) for name in theirs):
        raise ShoalError(
            f"team {team!r} of {run} reads its observations by running statistics, without which"
            " its weights mean nothing: set normalise_obs to True"
        )


def _of(team: str, leaves: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A team's arrays, by name within its learner."""
    own = f"{team}/"
    return {name.removeprefix(own): leaf for name, leaf in leaves.items() if name.startswith(own)}


def _taken(algorithm: Algorithm, fresh: Any, theirs: dict[str, np.ndarray]) -> _Taken:
    """The arrays that fit; none if hardly any parameters do."""
    arrays = {}
    new = {}
    whole = 0
    for name, leaf in folder.leaves_by_name(fresh).items():
        field, _, rest = name.partition("/")
        if field not in algorithm.inherits:
            continue
        whole += np.size(leaf) if field == "params" else 0
        # a saved policy has no target networks: copy the parameters they follow
        other = theirs.get(name, theirs.get(f"params/{rest}") if field == "target" else None)
        if other is None:
            new[name] = "not there"
        elif other.shape != np.shape(leaf) or other.dtype != leaf.dtype:
            new[name] = f"{_shape(other)} there, {_shape(leaf)} here"
        else:
            arrays[name] = other
    fitting = sum(leaf.size for name, leaf in arrays.items() if name.startswith("params/"))
    return _Taken(arrays if fitting >= LEAST * whole else {}, new)


def _replaced(learner: Any, arrays: dict[str, np.ndarray]) -> Any:
    leaves = [arrays.get(name, leaf) for name, leaf in folder.leaves_by_name(learner).items()]
    return jax.tree.unflatten(jax.tree.structure(learner), leaves)


def _shape(leaf: Any) -> str:
    return "x".join(map(str, np.shape(leaf))) or "a number"


def _sentence(source: str, team: str, taken: _Taken) -> str:
    """A message on how much of a team was copied."""
    examples = [f"{name} ({why})" for name, why in list(taken.new.items())[:FEW]]
    more = f" and {len(taken.new) - FEW} more" if len(taken.new) > FEW else ""
    new = f"; new are {', '.join(examples)}{more}" if examples else ""
    if not taken.arrays:
        return f"team {team} begins anew, as next to nothing of {source} fits{new}"
    count = len(taken.arrays) + len(taken.new)
    return f"team {team} starts from {source}: {len(taken.arrays)} of {count} arrays fit{new}"

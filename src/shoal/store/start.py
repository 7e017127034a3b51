"""`--from`: a run whose nets begin with another run's weights instead of new ones.

Parameters, target networks and statistics of returns are taken over, array by array, where they are
called alike and have the same shape; optimisers, memories and counters begin anew. The other run's
files are read as data: nothing that they name is imported, and no environment is opened.
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

FEW = 3  # arrays that are named in a sentence
LEAST = 0.05  # of a team's parameters, below which it is not worth while: some biases always fit


class Start(NamedTuple):
    """The learners that a run begins with."""

    learners: dict[str, Any]
    sentences: list[str]  # what was taken over, of each team
    about: dict[str, Any]  # the same, as JSON


class _Taken(NamedTuple):
    """What a team takes over."""

    arrays: dict[str, np.ndarray]
    new: dict[str, str]  # arrays that begin anew, and why


def check(config: Config) -> None:
    """Refuse a run to start from of which nothing fits."""
    if config.settings.from_run:
        begin(config, {team: outline(one.init) for team, one in config.algorithms.items()})


def begin(config: Config, fresh: dict[str, Any]) -> Start:
    """The learners of a run that has `fresh` ones, with the weights of the one it starts from."""
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
        # looked up and never imported: the name stands in a file
        theirs = ALGORITHMS.get(ALIASES.get(names[team], names[team]))
        if theirs is not None and not theirs.inherits:
            sentences.append(f"team {team} begins anew: it played {names[team]} in {run}")
            continue
        _refuse_other_family(run, team, names[team], theirs, algorithm)
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
    """Refuse weights of another family: they mean something else."""
    if name == algorithm.name or (theirs is not None and theirs.family == algorithm.family):
        return
    raise ShoalError(
        f"{run} trained team {team!r} by {name}, whose nets mean something else than those of"
        f" {algorithm.name}: start from a run of {algorithm.name} or of an algorithm of its family"
    )


def _of(team: str, leaves: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """A team's arrays by their names in its learner."""
    own = f"{team}/"
    return {name.removeprefix(own): leaf for name, leaf in leaves.items() if name.startswith(own)}


def _taken(algorithm: Algorithm, fresh: Any, theirs: dict[str, np.ndarray]) -> _Taken:
    """The arrays that fit; none if next to none of the parameters do."""
    arrays = {}
    new = {}
    whole = 0
    for name, leaf in folder.leaves_by_name(fresh).items():
        field, _, rest = name.partition("/")
        if field not in algorithm.inherits:
            continue
        whole += np.size(leaf) if field == "params" else 0
        # a policy has no target networks: they begin as copies of what they follow
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
    """How much of a team begins as in the other run."""
    examples = [f"{name} ({why})" for name, why in list(taken.new.items())[:FEW]]
    more = f" and {len(taken.new) - FEW} more" if len(taken.new) > FEW else ""
    new = f"; new are {', '.join(examples)}{more}" if examples else ""
    if not taken.arrays:
        return f"team {team} begins anew, as next to nothing of {source} fits{new}"
    count = len(taken.arrays) + len(taken.new)
    return f"team {team} starts from {source}: {len(taken.arrays)} of {count} arrays fit{new}"

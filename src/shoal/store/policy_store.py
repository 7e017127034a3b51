"""Policies on disk: the acting part of every team's learner, as arrays and JSON; reading runs no
code from the files.

A policy folder is `policy/` (the final policy of a run), `best/` (the best by evaluation) or a
checkpoint.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from .. import files, zoo
from ..algorithms.opponents.frozen import Finished
from ..config.config import Config
from ..config.trust import NOTHING, OF_FILES, Trust
from ..errors import ShoalError
from ..nets.layers import outline
from ..options import entry
from . import checkpoint, folder

# files in a policy folder
WEIGHTS = "weights.safetensors"
ABOUT = "policy.json"


class BestEvaluation(NamedTuple):
    """The evaluation with the highest score of a team, or of a metric."""

    team: str  # team or metric
    steps: int
    score: float  # mean return per agent, or mean of the metric


class Saved(NamedTuple):
    """A policy read from disk."""

    config: Config
    # acting part by team; without some teams if only some agents were saved
    learners: dict[str, Any]
    steps: int  # steps of training
    agents: tuple[str, ...] = ()  # agents saved; empty for all


class Arrays(NamedTuple):
    """Arrays of learners, as saved."""

    place: Path
    about: dict[str, Any]  # the JSON beside them
    leaves: dict[str, np.ndarray]  # by name


def acting(config: Config, learners: dict[str, Any]) -> dict[str, Any]:
    """The acting part of every team's learner."""
    return {team: config.algorithms[team].acting(learner) for team, learner in learners.items()}


def save(
    place: Path,
    config: Config,
    learners: dict[str, Any],
    steps: int,
    best: BestEvaluation | None = None,
    agents: tuple[str, ...] = (),
) -> None:
    """Write a policy folder.

    `best` is the evaluation in which it was best; `agents` are those saved, if not all."""
    from safetensors.numpy import save as as_bytes

    leaves = folder.leaves_by_name(acting(config, learners))
    blob = as_bytes({name: np.array(leaf, order="C") for name, leaf in leaves.items()})
    about = (
        {"steps": steps}
        | (best._asdict() if best else {})
        | ({"agents": list(agents)} if agents else {})
    )
    about |= {"sha256": hashlib.sha256(blob).hexdigest(), "config": config.to_json()}
    try:
        with files.atomic_folder(place) as temporary:
            (temporary / WEIGHTS).write_bytes(blob)
            files.write_json(temporary / ABOUT, about)
    except OSError as error:
        why = error.strerror or error
        raise ShoalError(
            f"the policy cannot be written to {place} ({why}): mend that, or choose another place"
        ) from None


def best_of(run: Path) -> BestEvaluation | None:
    """The evaluation that chose a run's `best/`, if there is one."""
    try:
        about = files.read_json(run / folder.BEST / ABOUT, "a saved policy")
        return BestEvaluation(about["team"], about["steps"], about["score"])
    except (ShoalError, KeyError, TypeError):
        return None


def load(path: Path, best: bool = False, trust: Trust = NOTHING) -> Saved:
    """Read a run's final or best policy, or the one in a policy folder or checkpoint.

    Opens no environment; `trust` applies when the policy is played later."""
    path = zoo.place(path)
    if best and any((path / name).is_file() for name in (checkpoint.ABOUT, ABOUT)):
        raise ShoalError(
            f"{path} is a policy or a checkpoint, but only a run has a best policy: load the run's"
            f" folder"
        )
    if itself := _itself(path):
        return _rebuilt(*itself, trust)
    place = files.settled(path / (folder.BEST if best else folder.POLICY))
    if not place.exists():
        raise ShoalError(
            f"{path} has no {place.name} policy yet: resume it, or load one of its checkpoints"
        )
    return _rebuilt(place, *_arrays(place), trust)


def saved(path: Path) -> Arrays:
    """Read all saved arrays of learners: from a run's newest intact checkpoint or else its policy,
    or from a policy folder or a checkpoint."""
    path = zoo.place(path)
    if itself := _itself(path):
        return itself
    for place in checkpoint.places(path):
        try:
            return Arrays(place, *_learners(place))
        except files.Newer:
            raise
        except ShoalError:  # damaged: try the checkpoint before
            continue
    place = files.settled(path / folder.POLICY)
    if not place.exists():
        raise ShoalError(f"{path} has no checkpoint and no policy yet: resume it first")
    return Arrays(place, *_arrays(place))


def whole(path: Path, config: Config, steps: int) -> dict[str, Any]:
    """Whole learners by team, critics and all, from a run's checkpoint of that step; empty if
    there is none."""
    try:
        _, about, leaves = saved(path)
    except (ShoalError, OSError):
        return {}
    fresh = {team: outline(one.init) for team, one in config.algorithms.items()}
    wanted = folder.leaves_by_name(fresh)
    fits = all(name in leaves and leaves[name].shape == x.shape for name, x in wanted.items())
    if about.get("steps") != steps or not fits:
        return {}
    return jax.tree.unflatten(jax.tree.structure(fresh), [leaves[name] for name in wanted])


def _itself(path: Path) -> Arrays | None:
    """Arrays of a policy folder or a checkpoint; None for a run."""
    if (path / checkpoint.ABOUT).is_file():
        return Arrays(path, *_learners(path))
    if (path / ABOUT).is_file():
        return Arrays(path, *_arrays(path))
    if not (path / folder.CONFIG).is_file():
        raise folder.no_run(path, "a run folder, a policy or a checkpoint")
    return None


def _learners(place: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """JSON of a checkpoint, and its arrays that belong to learners."""
    about, leaves = checkpoint.opened(place)
    return about, {
        name.partition("/")[2]: leaf
        for name, leaf in leaves.items()
        if name.startswith("learners/")
    }


def _arrays(place: Path) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """JSON and arrays of a policy folder; refuses damage."""
    from safetensors import SafetensorError
    from safetensors.numpy import load as as_arrays

    about = files.read_json(place / ABOUT, "a saved policy")
    try:
        blob = files.read_bytes(place / WEIGHTS)
        leaves = folder.with_new_names(as_arrays(blob))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise ShoalError(
            f"the weights in {place} cannot be read ({error}): load another policy or a checkpoint"
        ) from None
    if not isinstance(about, dict) or about.get("sha256", "") != hashlib.sha256(blob).hexdigest():
        raise ShoalError(
            f"the weights in {place} are damaged, their checksum does not fit: load another policy"
            f" or a checkpoint"
        )
    return about, leaves


def _rebuilt(
    place: Path, about: dict[str, Any], leaves: dict[str, np.ndarray], trust: Trust
) -> Saved:
    """Rebuild the policy from its arrays; refuses arrays that do not fit the config."""
    with files.errors_name(place):
        config = Config.of_policy(about.get("config"), trust)
        steps = entry(about, "steps", int)
        agents = _agents(config, about)
        playing = [
            team
            for team, spec in config.sides.items()
            if not agents or set(agents) & set(spec.agents)
        ]
        fresh = acting(config, {team: outline(config.algorithms[team].init) for team in playing})
    wanted = folder.leaves_by_name(fresh)  # an earlier version saved whole learners
    kinds = {name: (leaf.shape, leaf.dtype) for name, leaf in leaves.items() if name in wanted}
    if kinds != {name: (leaf.shape, leaf.dtype) for name, leaf in wanted.items()}:
        raise ShoalError(
            f"the weights in {place} do not fit their config: load them with the version of shoal"
            f" that wrote them"
        )
    learners = jax.tree.unflatten(jax.tree.structure(fresh), [leaves[name] for name in wanted])
    return Saved(config, learners, steps, agents)


def _agents(config: Config, about: dict[str, Any]) -> tuple[str, ...]:
    """The agents that a policy was saved for; empty for all."""
    names = about.get("agents", [])
    known = [agent for spec in config.sides.values() for agent in spec.agents]
    if not isinstance(names, list) or not all(name in known for name in names):
        raise ShoalError("'agents' there must be a list of agents that play")
    return tuple(names)


def finished(run: str, origin: Any) -> Finished:
    """A finished run as frozen opponent; `origin` is what an earlier config saved about it."""
    config, learners, steps = _frozen(run, origin)
    if origin:
        config = Config.of_policy(entry(origin, "config", dict), OF_FILES.get())
        steps = entry(origin, "steps", int)
    about = {"steps": steps, "config": config.to_json()}
    return Finished(config.env, config.algorithms, learners, config.clock(steps), about)


def _frozen(run: str, origin: Any) -> tuple[Any, Any, int]:
    """Config, learners and steps of a run; learners are None if the run is no longer that of
    `origin`."""
    try:
        config, learners, steps, _ = load(Path(run), trust=OF_FILES.get())
    except ShoalError:
        if origin:
            return None, None, 0
        raise
    except RecursionError:
        raise ShoalError(f"{run} is frozen as an opponent of itself: freeze another") from None
    same = not origin or (
        entry(origin, "steps", int) == steps
        # compare in the format of this version
        and Config.of_policy(entry(origin, "config", dict)).to_json() == config.to_json()
    )
    return config, learners if same else None, steps

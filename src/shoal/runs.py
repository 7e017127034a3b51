"""The run folder: what is in it, and how it is written and read."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import platform
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from . import __version__
from .config import Config
from .types import ShoalError

CONFIG, METRICS, EPISODES, SUMMARY = "config.json", "metrics.jsonl", "episodes.csv", "summary.json"
LOCK = ".lock"  # held by the process that trains
FAULTS = "faults.jsonl"  # only if an environment on the host broke
CURVE, POLICY, TENSORBOARD = "curve.png", "policy", "tensorboard"
WEIGHTS, ABOUT = "weights.safetensors", "policy.json"  # inside the policy folder


def plan(config: Config) -> Path:
    """Where the run will go; refuses a place that is taken or cannot be written to, without touching it."""
    s = config.settings
    stamp = time.strftime("%Y%m%d-%H%M%S")
    name = s.name or f"{config.label}-{re.sub(r'[/:]', '__', config.env)}-{s.seed}-{stamp}"
    path = Path(s.out) / name
    if path.exists() and s.name:
        raise ShoalError(f"{path} exists already and is never overwritten: choose another name or out")
    again = 2
    while path.exists():
        path, again = path.with_name(f"{name}-{again}"), again + 1
    there = next(parent for parent in path.absolute().parents if parent.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise ShoalError(f"the run folder {path} cannot be made, as {there} cannot be written to: choose another out")
    return path


def create(path: Path, config: Config) -> None:
    """Make the folder and say in it what the run is."""
    try:
        path.mkdir(parents=True, exist_ok=False)
    except OSError as error:
        raise ShoalError(f"the run folder {path} cannot be made ({error.strerror}): choose another out") from None
    write_json(path / CONFIG, config.to_json() | {"protocol": protocol(config)})


def protocol(config: Config) -> dict[str, Any]:
    """What a reader of the scores must know beside the config."""
    s = config.settings
    return {
        "versions": {
            "shoal": __version__,
            "jax": jax.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "device": jax.devices()[0].device_kind,
        "devices": config.devices,
        "teams": {team: algorithm.protocol(config.share) for team, algorithm in config.algorithms.items()},
        "evaluation": {"actions": "greedy" if s.greedy else "sampled", "episodes": s.eval_episodes},
        "score": "mean undiscounted return of one agent",
    }


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """One process at a time; whoever dies lets go."""
    with (path / LOCK).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ShoalError(f"{path} is being trained by another process") from None
        yield


def config_of(path: Path) -> Config:
    """The config of a run, with the number of devices it really uses."""
    plain = read_json(path / CONFIG, "a run folder")
    config = Config.from_json(plain)
    devices = 0 if config.hosted else plain["protocol"]["devices"]
    return replace(config, settings=replace(config.settings, devices=devices))


def write_json(path: Path, content: Any) -> None:
    """All of it or nothing."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(content, indent=2) + "\n")
    os.replace(temporary, path)


def read_json(path: Path, what: str) -> Any:
    """Content of a file that a run folder must have."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        raise ShoalError(f"{path.parent} is not {what}: it has no readable {path.name}") from None


def save_policy(run: Path, config: Config, learners: dict[str, Any], steps: int) -> None:
    """Every team's learner and how to rebuild it: arrays and JSON, nothing that runs when it is read."""
    from safetensors.numpy import save_file

    leaves = {name: np.array(leaf, order="C") for name, leaf in named(learners).items()}
    temporary, before = run / f"{POLICY}.tmp", run / f"{POLICY}.old"
    for leftover in (temporary, before):
        shutil.rmtree(leftover, ignore_errors=True)
    temporary.mkdir()
    save_file(leaves, temporary / WEIGHTS)
    write_json(temporary / ABOUT, {"steps": steps, "config": config.to_json()})
    if (run / POLICY).exists():
        os.replace(run / POLICY, before)
    os.replace(temporary, run / POLICY)
    shutil.rmtree(before, ignore_errors=True)


def load_policy(run: Path) -> tuple[Config, dict[str, Any], int]:
    """The config, the learners and the steps they were trained for."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    if not (run / CONFIG).is_file():
        raise ShoalError(f"{run} is not a run folder: it has no {CONFIG}")
    about = read_json(run / POLICY / ABOUT, "a saved policy")
    config = Config.from_json(about["config"])
    rng = np.random.default_rng(0)
    fresh = {team: algorithm.init(rng) for team, algorithm in config.algorithms.items()}
    try:
        leaves = load_file(run / POLICY / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise ShoalError(f"the weights in {run / POLICY} cannot be read: {error}") from None
    shapes = {name: leaf.shape for name, leaf in leaves.items()}
    if shapes != {name: np.shape(leaf) for name, leaf in named(fresh).items()}:
        raise ShoalError(f"the weights in {run / POLICY} do not fit their config: another version of shoal wrote them")
    learners = jax.tree.unflatten(jax.tree.structure(fresh), [leaves[name] for name in named(fresh)])
    return config, learners, about["steps"]


def named(tree: Any) -> dict[str, Any]:
    """Leaves by their place in the tree, in the tree's order."""
    paths = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in paths}

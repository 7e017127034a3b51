"""EPyMARL's own training loop (`run_sequential` of its `src/run.py`), prepared for `peers.py`.

Its settings are its own: `default.yaml`, then those of the environment and of the algorithm, with
evaluation, logging and a large empty buffer switched off. Imported by a Python that has PyTorch and
what EPyMARL imports; packages of parts that are not used here may be missing.
"""

from __future__ import annotations

import importlib
import logging
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

UNUSED = ("smaclite", "torch_scatter")
STEPS = 25  # of an iteration: an episode, then a gradient step
QUIET: dict[str, Any] = {
    "use_cuda": False,
    "test_nepisode": 1,
    "test_interval": 10**9,
    "log_interval": 10**9,
    "runner_log_interval": 10**9,
    "learner_log_interval": 10**9,
    "buffer_size": 1_000,
}


class Peer:
    """EPyMARL on simple_spread: trains, and counts what it did."""

    def __init__(self, checkout: Path, algorithm: str):
        for name in UNUSED:
            sys.modules.setdefault(name, types.ModuleType(name))
        sys.path.insert(0, str(checkout / "src"))
        importlib.import_module("torch").set_num_threads(1)
        self.settings = _settings(checkout / "src" / "config", algorithm)
        self.run = importlib.import_module("run")
        self.updates = 0
        self.rows = 0
        self.parameters = 0
        learners = self.run.le_REGISTRY
        learners[self.settings["learner"]] = self._counting(learners[self.settings["learner"]])

    def _counting(self, kind: Callable[..., Any]) -> Callable[..., Any]:
        """What makes learners of this kind, whose gradient steps are counted."""

        def make(*words: Any) -> Any:
            learner = kind(*words)
            plain = learner.train

            def train(batch: Any, *rest: Any) -> None:
                plain(batch, *rest)
                self.updates += 1
                self.rows = batch.batch_size * (batch.max_seq_length - 1)
                self.parameters = _trained(learner)

            learner.train = train
            return learner

        return make

    def train(self, iterations: int) -> int:
        """Train for so many episodes from the start; environment steps."""
        steps = iterations * STEPS
        args = types.SimpleNamespace(**self.settings, t_max=steps - 1, device="cpu")
        logger = importlib.import_module("utils.logging").Logger(logging.getLogger("epymarl"))
        self.run.run_sequential(args, logger)
        return steps


def _settings(folder: Path, algorithm: str) -> dict[str, Any]:
    yaml = importlib.import_module("yaml")
    merged: dict[str, Any] = {}
    for name in ("default", "envs/gymma", f"algs/{algorithm}"):
        merged |= yaml.safe_load((folder / f"{name}.yaml").read_text())
    merged |= QUIET
    merged.pop("t_max")
    game = {"key": "pz-mpe-simple-spread-v3", "time_limit": STEPS, "seed": 0}
    merged["env_args"] |= game
    return merged | {"seed": 0}


def _trained(learner: Any) -> int:
    """Parameters of all optimisers of a learner."""
    groups = [
        group for value in vars(learner).values() for group in getattr(value, "param_groups", ())
    ]
    return sum(weight.numel() for group in groups for weight in group["params"])

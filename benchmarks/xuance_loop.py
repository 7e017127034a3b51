"""XuanCe's own training loop (`train` of its agents), prepared for `peers.py`.

Its settings are its own: `basic.yaml`, then those of the algorithm on simple_spread; nothing is
evaluated. Imported by a Python that has PyTorch, XuanCe and PettingZoo 1.24 with its MPE; packages
of parts that are not used here may be missing.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

UNUSED = ("pyglet", "pyglet.resource")
STEPS = 400  # of an iteration: 25 of each of 16 games, then a gradient step
GAMES = 16


class Peer:
    """XuanCe on simple_spread: trains, and counts what it did."""

    def __init__(self, _: Path, algorithm: str):
        for name in UNUSED:
            stub: Any = types.ModuleType(name)
            stub.model = None
            sys.modules.setdefault(name, stub)
        importlib.import_module("torch").set_num_threads(1)
        self.settings = _settings(algorithm)
        self.make_envs = importlib.import_module("xuance.environment").make_envs
        self.agents = importlib.import_module("xuance.torch.agents").REGISTRY_Agents
        self.updates = 0
        self.rows = 0
        self.parameters = 0

    def train(self, iterations: int) -> int:
        """Train for so many iterations from the start; environment steps."""
        with tempfile.TemporaryDirectory() as folder, _silent():
            args = types.SimpleNamespace(**self.settings, log_dir=folder, model_dir=folder)
            agent = self.agents[args.agent](args, self.make_envs(args))
            self._count(agent.learner)
            agent.train(iterations * STEPS // GAMES)
            agent.finish()
        return iterations * STEPS

    def _count(self, learner: Any) -> None:
        """Count the gradient steps of a learner."""
        plain = learner.update

        def update(sample: Any) -> Any:
            self.updates += 1
            self.rows = self.settings["batch_size"]
            return plain(sample)

        learner.update = update
        optimisers = learner.optimizer
        if not isinstance(optimisers, dict):
            optimisers = {"all": optimisers}
        self.parameters = sum(_trained(one) for one in optimisers.values())


def _settings(algorithm: str) -> dict[str, Any]:
    yaml = importlib.import_module("yaml")
    folder = Path(importlib.import_module("xuance").__file__ or "").parent / "configs"
    merged: dict[str, Any] = {}
    for name in ("basic", f"{algorithm}/mpe/simple_spread_v3"):
        merged |= yaml.safe_load((folder / f"{name}.yaml").read_text())
    for name in ("log_dir", "model_dir"):
        merged.pop(name)
    return merged | {"render": False, "test_mode": False}


@contextlib.contextmanager
def _silent() -> Any:
    """Without its progress bars."""
    with (
        Path(os.devnull).open("w") as nowhere,
        contextlib.redirect_stderr(nowhere),
        contextlib.redirect_stdout(nowhere),
    ):
        yield


def _trained(optimiser: Any) -> int:
    """Parameters of an optimiser, or of a dictionary of them."""
    if isinstance(optimiser, dict):
        return sum(map(_trained, optimiser.values()))
    return sum(weight.numel() for group in optimiser.param_groups for weight in group["params"])

"""Runs of equal seed end where they did before the source moved into rooms.

`tests/data/golden.json` was written by this file with the source of that day:
`PYTHONPATH=<that source> python tests/run/test_golden.py`. Bits depend on the processor, so what is
kept are sums of the weights. A change that alters the arithmetic on purpose writes it anew and says
so in the changelog.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import shoal

GOLDEN = Path(__file__).parent.parent / "data" / "golden.json"
SIZES: dict[str, Any] = {"steps": 300, "games": 4, "window": 25, "hidden": 8, "seed": 3}
REPLAY = {"warmup": 50, "capacity": 1000, "batch": 4, "updates": 2}
RUNS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "ppo": ("ppo", "mpe/simple_spread", {}),
    "mappo-gru": ("mappo", "mpe/simple_reference", {"torso": "gru"}),
    "coma": ("coma", "mpe/simple_spread", {}),
    "qmix": ("qmix", "mpe/simple_spread", REPLAY),
    "masac": ("masac", "mpe/simple_spread", {"env": {"continuous_actions": True}, **REPLAY}),
    "host": ("ppo", "gym:CartPole-v1", {"workers": 0}),
}


def sums(name: str, out: Path) -> dict[str, list[float]]:
    """The weights of a policy after a short run, as two sums of each array."""
    algorithm, env, options = RUNS[name]
    fixed = {"preset": False, "devices": 1, "eval_episodes": 1, "evaluations": 0, "quiet": True}
    run = shoal.train(algorithm, env, out=str(out), name=name, **(SIZES | fixed | options))
    weights = load_file(run.path / "policy" / "weights.safetensors")
    return {
        leaf: [float(np.sum(array, dtype=float)), float(np.sum(np.abs(array), dtype=float))]
        for leaf, array in weights.items()
    }


@pytest.mark.parametrize("name", RUNS)
def test_runs_end_where_they_did(name: str, tmp_path: Path) -> None:
    golden = json.loads(GOLDEN.read_text())[name]
    now = sums(name, tmp_path)
    assert now and now.keys() <= golden.keys()  # then all of the learner was saved, now what acts
    for leaf, numbers in now.items():
        assert numbers == pytest.approx(golden[leaf], rel=1e-4, abs=1e-4), leaf


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        found = {name: sums(name, Path(place)) for name in RUNS}
    GOLDEN.write_text(json.dumps(found, indent=1) + "\n")

"""A policy that reads by running statistics is saved, loaded, exported and frozen with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import bits

import shoal
from shoal.errors import ShoalError
from shoal.store import folder

SIZES: dict[str, Any] = {
    "steps": 120,
    "games": 2,
    "window": 6,
    "hidden": 4,
    "layers": 1,
    "evaluations": 0,
    "eval_episodes": 4,
    "preset": False,
    "quiet": True,
}
GAME = "test/mortal"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    out = tmp_path_factory.mktemp("made")
    return shoal.train("mappo", GAME, out=str(out), normalise_obs=True, **SIZES)


def statistics(player: Any) -> dict[str, np.ndarray]:
    return folder.leaves_by_name(player.learners["agent"].statistics)


@pytest.mark.slow
def test_trap_24_27_the_policy_on_disk_has_them(run: Any, tmp_path: Path):
    player = shoal.load(run.path)
    found = statistics(player)
    assert found["obs/counted"].min() > 0 and np.abs(found["obs/mean"]).max() > 0
    again = statistics(shoal.load(player.save(tmp_path / "copy")))
    assert all((again[name] == found[name]).all() for name in found)


@pytest.mark.slow
def test_it_is_exported_and_frozen_with_them(run: Any, tmp_path: Path):
    player = shoal.load(run.path)
    done = player.export(tmp_path / "made", to="numpy")  # compared with the policy as it is written
    assert done.checked["agent"].decisions > 0
    frozen = player.against({"agent": f"frozen:{run.path}"})
    assert bits(frozen.evaluate(4)) == bits(player.evaluate(4))


def test_a_run_begins_with_them_or_not_at_all(run: Any, tmp_path: Path):
    begun: dict[str, Any] = {"out": str(tmp_path), "from_run": str(run.path)}
    on = shoal.train("mappo", GAME, normalise_obs=True, **SIZES, **begun)
    assert on.before == run.scores != run.before
    with pytest.raises(ShoalError, match="reads its observations by running statistics"):
        shoal.train("mappo", GAME, **SIZES, **begun)

"""Runs that version 0.1.0 saved and left half way are still loaded, evaluated and resumed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import shoal

SAVED = Path(__file__).parent.parent / "data" / "0.1.0"
RUNS = sorted(path.name for path in SAVED.iterdir())


@pytest.fixture(params=RUNS)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy of one of them."""
    return Path(shutil.copytree(SAVED / request.param, tmp_path / request.param))


@pytest.mark.parametrize("best", [False, True])
def test_its_policies_act_and_are_evaluated(run: Path, best: bool) -> None:
    player = shoal.load(run, best=best)
    spec = player.config.game.teams["agent"]
    actions = player.act({agent: np.zeros(spec.obs, np.float32) for agent in spec.agents})
    assert set(actions) == set(spec.agents)
    played = player.evaluate(2)
    assert np.isfinite(played.returns["agent"]).all()


def test_it_goes_on_to_its_end(run: Path) -> None:
    steps = json.loads((run / "config.json").read_text())["settings"]["steps"]
    result = shoal.resume(run, quiet=True)
    assert result.steps >= steps and not result.stopped

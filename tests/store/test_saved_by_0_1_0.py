"""Runs that version 0.1.0 saved and left half way are still loaded, evaluated and resumed."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import shoal
from shoal.config.config import Config
from shoal.store import start
from shoal.store.folder import config_of

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


@pytest.mark.slow
def test_it_goes_on_to_its_end(run: Path) -> None:
    steps = json.loads((run / "config.json").read_text())["settings"]["steps"]
    result = shoal.resume(run, quiet=True)
    assert result.steps >= steps and not result.stopped


def test_it_is_trained_further(run: Path) -> None:
    steps = 2 * json.loads((run / "config.json").read_text())["settings"]["steps"]
    assert shoal.resume(run, quiet=True, steps=steps).steps >= steps
    assert json.loads((run / "config.json").read_text())["settings"]["steps"] == steps


@pytest.mark.parametrize("place", ["", "best", "policy"])
def test_a_run_starts_from_it(run: Path, place: str) -> None:
    """From its checkpoint or from a policy, which held whole learners then."""
    config = config_of(run)
    config = replace(config, settings=replace(config.settings, from_run=str(run / place)))
    rng = np.random.default_rng(0)
    fresh = {team: algorithm.init(rng) for team, algorithm in config.algorithms.items()}
    assert start.begin(config, fresh).about["teams"]["agent"]["new"] == []


def test_it_keeps_an_option_that_has_another_default_now(run: Path) -> None:
    assert config_of(run).algorithms["agent"].config.adam_epsilon == 1e-5


def test_a_config_by_hand_has_todays_defaults() -> None:
    plain = json.loads((SAVED / RUNS[0] / "config.json").read_text())
    plain["teams"]["agent"] = {"algorithm": "dqn", "options": {"lr": 1e-4, "warmup": 0}}
    assert Config.from_json(plain).algorithms["agent"].config.adam_epsilon == 1e-8

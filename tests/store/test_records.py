"""The JSON files of a run say what their records promise, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NotRequired, get_origin, get_type_hints

import pytest

import shoal
from shoal.errors import ShoalError
from shoal.store import checkpoint, folder, policy_store, records, summary


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = {"steps": 40, "games": 4, "window": 5, "hidden": 4, "minibatches": 1, "devices": 1}
    out = str(tmp_path_factory.mktemp("runs"))
    return shoal.train(
        "ppo", "test/identity", eval_episodes=2, evaluations=0, out=out, quiet=True, **sizes
    ).path


def fits(path: Path, kind: Any) -> dict[str, Any]:
    """What a file says, which has every key that must be there and none that may not."""
    said = json.loads(path.read_text())
    hints = get_type_hints(kind, include_extras=True)
    needed = {name for name, hint in hints.items() if get_origin(hint) is not NotRequired}
    assert needed <= set(said) <= set(hints)
    return said


@pytest.mark.slow
def test_a_checkpoint(run: Path):
    said = fits(next(checkpoint.places(run)) / checkpoint.ABOUT, records.CheckpointAbout)
    assert set(said["best"]) == set(records.BestAbout.__annotations__)
    assert set(said["protocol"]) == set(records.RunProtocol.__annotations__)
    assert set(said["protocol"]["evaluation"]) == set(records.EvaluationProtocol.__annotations__)


def test_policies(run: Path):
    assert "team" not in fits(run / folder.POLICY / policy_store.ABOUT, records.PolicyAbout)
    assert "team" in fits(run / folder.BEST / policy_store.ABOUT, records.PolicyAbout)


def test_how_a_run_ended(run: Path, tmp_path: Path):
    fits(run / folder.SUMMARY, records.Summary)
    summary.write_failure(tmp_path, ShoalError("it broke"), 5, 1.0)
    assert fits(tmp_path / folder.SUMMARY, records.Failure)["message"] == "it broke"

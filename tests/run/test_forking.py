"""A fork of a run: to the bit where nothing changed, and other settings where they did."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from shoal.cli.main import main
from shoal.store import checkpoint, folder

SMALL = (
    "ppo test/mortal --torso gru --games 4 --window 5 --hidden 8 --layers 1 --minibatches 1"
    " --evaluations 2 --eval-episodes 2 --steps 600 --save-every 200 --keep 9 --devices 1"
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("forks")
    assert main(["train", *SMALL.split(), "--out", str(home), "--name", "run"]) == 0
    return home / "run"


def weights(run: Path) -> bytes:
    return (run / folder.POLICY / "weights.safetensors").read_bytes()


def test_a_fork_without_changes_ends_as_its_run(trained: Path) -> None:
    middle = sorted(checkpoint.places(trained))[2]
    words = ["--at", str(int(middle.name)), "--out", str(trained.parent), "--name", "same"]
    assert main(["fork", str(trained), *words]) == 0
    same = trained.parent / "same"
    assert weights(same) == weights(trained)
    for name in (folder.EPISODES, "best/weights.safetensors"):
        assert (same / name).read_bytes() == (trained / name).read_bytes()
    saved = json.loads((same / folder.CONFIG).read_text())
    assert saved["forked"] == {"run": str(trained), "steps": int(middle.name)}


def test_a_fork_with_another_rate_and_more_steps_learns_on(trained: Path) -> None:
    words = ["--lr", "0.01", "--steps", "800", "--out", str(trained.parent), "--name", "other"]
    assert main(["fork", str(trained), *words]) == 0
    other = trained.parent / "other"
    saved = json.loads((other / folder.CONFIG).read_text())
    assert {one["options"]["lr"] for one in saved["teams"].values()} == {0.01}
    assert saved["settings"]["steps"] == 800 and folder.finished(other, 800)
    assert weights(other) != weights(trained)


def test_what_cannot_be_forked_is_said_and_leaves_nothing(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--out", str(trained.parent), "--name", "none"]
    wrong = {
        (): "ask for more, as in --steps",
        ("--steps", "900", "--at", "7"): "has no checkpoint after 7 steps",
        ("--steps", "900", "--hidden", "16"): "does not fit its run's config",
        ("--steps", "900", "--colour", "3"): "there is no option --colour",
    }
    for words, sentence in wrong.items():
        assert main(["fork", str(trained), *words, *place]) == 2
        assert sentence in capsys.readouterr().err
    assert not (trained.parent / "none").exists()

"""`shoal evaluate` of a group and of a campaign: every run, and what they come to."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from shoal import files
from shoal.cli.main import main
from shoal.config import campaign
from shoal.config.arguments import compose_arguments
from shoal.store import folder

TINY = (
    "a2c test/identity --games 2 --window 5 --hidden 4 --layers 1 --evaluations 0"
    " --eval-episodes 2 --steps 50"
)
WORDS = TINY.split()
SEEDS = [3, 7]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A group and a campaign of the same two runs."""
    out = tmp_path_factory.mktemp("made")
    group = out / "group"
    for seed in SEEDS:
        assert (
            main(
                [
                    "train",
                    *WORDS,
                    "--seed",
                    f"{seed}",
                    "--out",
                    f"{group}",
                    "--name",
                    f"seed-{seed}",
                ]
            )
            == 0
        )
    config, _ = compose_arguments([*WORDS, "--seeds", "3,7"])
    files.write_json(group / folder.GROUP, {"seeds": SEEDS, "config": config.to_json()})
    plan = campaign.made({"a2c": WORDS[:1]}, {"identity": WORDS[1:2]}, SEEDS, WORDS[2:])
    campaign.save(plan, out / "camp")
    for seed in SEEDS:
        shutil.copytree(group / f"seed-{seed}", plan.pairs[0].path(out / "camp", seed))
    return out


def told(words: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["evaluate", *words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["group", "camp"])
def test_every_run_is_played_and_they_are_summed_up(
    name: str, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = told([str(made / name), "--episodes", "3", "--seed", "5"], capsys)
    assert (found["episodes"], found["seed"], found["actions"]) == (3, 5, "greedy")
    alone = [
        shoal.load(run["run"]).evaluate(3, seed=5).returns["agent"].mean() for run in found["runs"]
    ]
    assert [run["teams"]["agent"]["return"] for run in found["runs"]] == pytest.approx(alone)
    (mean,) = found["means"]
    assert mean["runs"] == 2 and mean["algorithm"] == "a2c"
    assert mean["env"] == ("test/identity" if name == "group" else "identity")
    assert mean["teams"]["agent"]["mean"] == pytest.approx(np.mean(alone))
    assert mean["teams"]["agent"]["deviation"] == pytest.approx(np.std(alone, ddof=1))


@pytest.mark.slow
def test_the_table_has_a_row_for_each_run_and_their_mean(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = told([str(made / "group"), "--episodes", "3"], capsys)
    assert main(["evaluate", str(made / "group"), "--episodes", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"2 runs of {made / 'group'}, 3 greedy episodes of each"
    for line, run in zip(lines[2:4], found["runs"], strict=True):
        assert line.split()[:3] == [
            Path(run["run"]).name,
            "agent",
            f"{run['teams']['agent']['return']:.2f}",
        ]
    mean = found["means"][0]["teams"]["agent"]
    spread = f"{mean['mean']:.2f} ± {mean['deviation']:.2f} between 2 runs"
    assert " ".join(lines[4].split()) == f"a2c on test/identity agent {spread}"


def test_another_may_take_a_place_in_all_of_them(
    made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = told([str(made / "group"), "--episodes", "2", "--team", "agent=random"], capsys)
    assert found["instead"] == {"agent": "random"} and len(found["runs"]) == 2


def test_runs_without_a_policy_are_left_out_and_told(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    group = Path(shutil.copytree(made / "group", tmp_path / "group"))
    shutil.rmtree(group / "seed-3" / folder.POLICY)
    found = told([str(group), "--episodes", "2"], capsys, code=1)
    assert [run["run"] for run in found["runs"]] == [str(group / "seed-7")]
    assert found["means"][0]["teams"]["agent"]["deviation"] is None
    assert "has no policy policy yet" in found["left"][0]["why"]
    shutil.rmtree(group / "seed-7" / folder.POLICY)
    assert main(["evaluate", str(group)]) == 2
    assert f"no run of {group} can be evaluated" in capsys.readouterr().err

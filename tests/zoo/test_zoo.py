"""Every policy of the zoo is what it says, and can be named wherever a run can."""

from __future__ import annotations

import json
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

import shoal
from shoal import files, plugins, zoo
from shoal.algorithms import parse_algorithm
from shoal.cli.main import main
from shoal.config.trust import NOTHING, parts
from shoal.errors import ShoalError
from shoal.store.player import Player

OURS = [path.parent.name for path in sorted(zoo.FOLDER.glob(f"*/{zoo.ABOUT}"))]


@pytest.mark.parametrize("name", OURS)
def test_a_policy_is_small_and_says_where_it_comes_from(name: str):
    player = shoal.load(f"zoo:{name}")
    about = json.loads((zoo.FOLDER / name / zoo.ABOUT).read_text())
    assert about["env"] == player.config.env and about["steps"] == player.steps
    assert about["command"].startswith("shoal train ") and about["licence"] == "Apache-2.0"
    assert about["episodes"] == 1_000
    assert about[files.FORMAT] == files.VERSIONS[zoo.ABOUT]
    sizes = [file.stat().st_size for file in (zoo.FOLDER / name).iterdir()]
    assert sum(sizes) < 100_000
    assert not any("/" in str(player.config.to_json()["settings"][key]) for key in ("out", "name"))
    for team in about["algorithms"]:  # each learner is better than random play
        label = f"{team} against random" if len(player.teams) > 1 else "as trained"
        scores = about["scores"]
        assert scores[label][team]["return"] > scores["random"][team]["return"]


def test_all_of_it_is_less_than_a_wheel_can_bear():
    assert sum(file.stat().st_size for file in zoo.FOLDER.rglob("*.*")) < 1_500_000


@pytest.mark.parametrize("name", ["climbing", "spread"])
def test_scores_are_found_again(name: str):
    about = json.loads((zoo.FOLDER / name / zoo.ABOUT).read_text())
    wanted = about["scores"]["as trained"]["agent"]["return"]
    got = shoal.load(f"zoo:{name}").evaluate(200, seed=7).score()["agent"]
    assert got == pytest.approx(wanted, abs=1.0)


def test_a_policy_is_an_opponent_and_needs_no_trust(tmp_path: Path):
    assert parse_algorithm("zoo:spread") == ("frozen", {"run": "zoo:spread"})
    player = shoal.load("zoo:spread").against({"agent": "zoo:spread"})
    assert player.evaluate(2).score() == shoal.load("zoo:spread").evaluate(2).score()
    run = shoal.train(
        "mpe/simple_spread",
        teams={"agent": "zoo:spread"},
        steps=100,
        games=4,
        evaluations=0,
        eval_episodes=2,
        out=str(tmp_path),
        quiet=True,
    )
    config = json.loads((run.path / "config.json").read_text())
    assert parts(config) == []  # `zoo:spread` is no import path
    assert isinstance(shoal.load(run.path), Player)  # a stranger may load it
    NOTHING.check_words(["--team", "agent=zoo:spread"])
    with pytest.raises(ShoalError, match="a file names 'zoo:spread'"):
        NOTHING.check_words(["--torso", "zoo:spread"])  # that would be a module of the folder


def test_the_command_lists_them(capsys: pytest.CaptureFixture[str]):
    assert main(["zoo"]) == 0
    told = capsys.readouterr().out
    assert all(f"zoo:{name}" in told for name in OURS)
    assert told.count("(Apache-2.0)") == len(OURS)
    assert main(["zoo", "spread"]) == 0
    assert "command: shoal train maa2c mpe/simple_spread" in capsys.readouterr().out
    assert main(["zoo", "zoo:climbing", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["climbing"]["package"] == "shoal"
    assert main(["zoo", "sprad"]) == 2
    assert "no policy 'sprad' (did you mean 'spread'?)" in capsys.readouterr().err
    assert main(["evaluate", "zoo:climbing", "--episodes", "2"]) == 0
    assert "dqn on matrix/climbing" in capsys.readouterr().out
    assert main(["train", "--team", "agent=zoo:sprad", "mpe/simple_spread"]) == 2
    assert "did you mean 'spread'?" in capsys.readouterr().err


def test_a_games_own_metrics_stand_beside_the_returns(capsys: pytest.CaptureFixture[str]):
    assert main(["zoo", "lbf", "rware", "connect-four", "tag"]) == 0
    told = capsys.readouterr().out
    assert "as trained: agent 0.42, food 0.85, won 0.84" in told
    assert "as trained: agent 3.76, deliveries 7.51" in told
    assert "random: player_0 0.85 (won 0.93), player_1 -0.85 (won 0.07)" in told
    assert "as trained: adversary 16.79 (wins 80.9%), agent -19.88 (wins 0.0%)" in told
    assert main(["zoo", "lbf", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["lbf"]["metrics"]["as trained"]["won"] == 0.837


def test_another_package_may_add_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shoal.load("zoo:climbing").save(tmp_path / "theirs")
    (tmp_path / "my_zoo.py").write_text(
        "from pathlib import Path\nTHEIRS = Path(__file__).with_name('theirs')\nWRONG = 3\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = {
        name: EntryPoint(name, f"my_zoo:{name.upper()}", "shoal.zoo")
        for name in ("theirs", "wrong")
    }
    real = plugins.entries
    monkeypatch.setattr(plugins, "entries", lambda kind: found if kind == "zoo" else real(kind))
    assert zoo.place("zoo:theirs") == tmp_path / "theirs"
    assert shoal.load("zoo:theirs").config.env == "matrix/climbing"
    with pytest.raises(ShoalError, match="my_zoo:WRONG is not the path of a policy's folder"):
        zoo.place("zoo:wrong")
    sys.modules.pop("my_zoo", None)

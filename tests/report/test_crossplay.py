"""Policies of several runs in pairs: what each cell is, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from helpers import TINY

import shoal
from shoal.cli import crossplay as cross
from shoal.cli import evaluate
from shoal.cli.crossplay import Crossplay
from shoal.cli.main import main
from shoal.errors import ShoalError
from shoal.report.crossplay import Entrant, Rules, Table, crossplay, write
from shoal.sweep import seeds

SMALL = {"games": 4, "steps": 200, "eval_episodes": 4, "evaluations": 0, "preset": False}
RULES = Rules(episodes=8)
LENGTH = {"max_cycles": 5}


def entrant(run: Path) -> Entrant:
    return Entrant(run.name, shoal.load(run))


@pytest.fixture(scope="module")
def spread(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two seeds of one team."""
    out = tmp_path_factory.mktemp("spread")
    for seed in (0, 1):
        shoal.train(
            "ppo", "mpe/simple_spread", env=LENGTH, seed=seed, out=str(out), name=f"s{seed}",
            quiet=True, **SMALL, **TINY,
        )  # fmt: skip
    return [out / "s0", out / "s1"]


@pytest.fixture(scope="module")
def tag(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs of two teams, with different algorithms."""
    out = tmp_path_factory.mktemp("tag")
    for name, kind in {"a": "ppo", "b": "a2c"}.items():
        teams = {team: (kind, TINY) for team in ("adversary", "agent")}
        shoal.train(
            "mpe/simple_tag", teams=teams, env=LENGTH, out=str(out), name=name, quiet=True, **SMALL
        )
    return [out / "a", out / "b"]


@pytest.mark.slow
def test_with_itself_a_policy_plays_as_it_does_alone(spread: list[Path]) -> None:
    entrants = [entrant(run) for run in spread]
    table = crossplay(entrants, RULES)
    alone = [one.player.evaluate(8).returns["agent"].mean() for one in entrants]
    np.testing.assert_allclose(np.diag(table.returns["agent"]), alone, rtol=1e-5)
    mixed = table.returns["agent"][[0, 1], [1, 0]]
    assert not np.isclose(mixed, alone).any() and mixed[0] != mixed[1]
    assert (table.rows, table.columns) == ("agent_0", "agent_1, agent_2")


@pytest.mark.slow
def test_a_row_plays_one_team_and_a_column_the_other(tag: list[Path]) -> None:
    table = crossplay([entrant(run) for run in tag], RULES)
    for row, mine in enumerate(tag):
        for column, theirs in enumerate(tag):
            player = shoal.load(mine).against({"agent": f"frozen:{theirs}"})
            for team, score in player.evaluate(8).score().items():
                assert table.returns[team][row, column] == pytest.approx(score, rel=1e-5)
    turned = crossplay([entrant(run) for run in tag], RULES._replace(team="agent"))
    assert turned.rows == "team agent"
    for team, returns in table.returns.items():
        np.testing.assert_allclose(turned.returns[team], returns.T, rtol=1e-5)


@pytest.mark.slow
def test_the_command_writes_numbers_and_a_heat_map(
    spread: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    words = ["crossplay", *map(str, spread), "--episodes", "8", "--out", str(tmp_path / "x")]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert "rows play agent_0, columns agent_1, agent_2" in shown and "worst" in shown
    plain = json.loads((tmp_path / "x" / "crossplay.json").read_text())
    assert plain["names"] == ["s0", "s1"] and np.shape(plain["returns"]["agent"]) == (2, 2)
    assert (tmp_path / "x" / "crossplay.png").read_bytes()[:4] == b"\x89PNG"


def test_a_name_may_look_like_a_formula(tmp_path: Path) -> None:
    name = r"$\frac{x$"
    write(Table(name, (name,), name, name, {name: np.zeros((1, 1))}, {}, {}), tmp_path)
    assert (tmp_path / "crossplay.png").is_file()


def test_names_are_shown_as_they_are(capsys: pytest.CaptureFixture) -> None:
    """Of runs and of teams, in every table, though they may look like colours to whoever prints."""
    name = "[red]x[/]"
    scores = np.zeros((1, 1))
    cross._print(Table("env", (name,), "all", "all", {name: scores}, {}, {}), Crossplay())
    evaluate._print_table([], [evaluate.Over(name, "env", {name: [1.0]}, {})])
    plain = {name: 1.0}
    about = {"mean": plain, "deviation": {name: None}, "iqm": plain, "scores": {name: plain}}
    seeds._tell(Path("group"), about | {"finished": 1, "seeds": [0]})
    assert capsys.readouterr().out.count(name) == 6


def test_a_refusal_is_one_line(spread: list[Path], capsys: pytest.CaptureFixture) -> None:
    assert main(["crossplay", str(spread[0])]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_what_cannot_play_is_refused_in_a_sentence(
    spread: list[Path], tag: list[Path], capsys: pytest.CaptureFixture
) -> None:
    alone, other = entrant(spread[0]), entrant(tag[0])
    with pytest.raises(ShoalError, match="needs at least two policies"):
        crossplay([alone])
    with pytest.raises(ShoalError, match=r"a was trained on mpe/simple_tag .*, s0 on mpe/simple"):
        crossplay([alone, other])
    with pytest.raises(ShoalError, match=r"seats must be between 1 and 2.* not 3"):
        crossplay([alone, alone], Rules(seats=3))
    with pytest.raises(ShoalError, match=r"no team 'agnt' \(did you mean 'agent'"):
        crossplay([other, other], Rules(team="agnt"))
    assert main(["crossplay", str(spread[0]), "nowhere"]) == 2
    assert "nowhere" in capsys.readouterr().err

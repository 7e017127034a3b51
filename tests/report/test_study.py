"""Metrics of environments in the reports of many runs: as columns, and as the score."""

from __future__ import annotations

import csv
import dataclasses
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from games import Scored
from helpers import TEAM, TINY, build

from shoal import envs
from shoal.cli import main
from shoal.config.settings import Settings
from shoal.engine.loop import Loop
from shoal.report import tables
from shoal.report.results import of_folders
from shoal.store.metrics_file import tag
from shoal.sweep.vectorised import program


def a_run(
    folder: Path,
    name: str,
    metrics: dict[str, tuple[float, ...]],
    algorithm: str = "ppo",
    teams: tuple[str, ...] = ("agent",),
    env: str = "mpe/simple_spread",
    seed: int = 0,
) -> Path:
    """A finished run that nobody trained; `metrics` are those of its three evaluations, and then of
    random play."""
    settings = dataclasses.asdict(Settings()) | {"steps": 100, "evaluations": 1, "seed": seed}
    sides = {team: {"algorithm": algorithm, "options": {"lr": 0.1}} for team in teams}
    path = folder / name
    path.mkdir(parents=True)
    saved = {"env": env, "options": {}, "teams": sides, "settings": settings, "protocol": {}}
    (path / "config.json").write_text(json.dumps(saved))
    looks = []
    for k, step in enumerate((0, 50, 100)):
        line: dict[str, Any] = {"env_step": step, "evaluation/length": 5}
        line |= {f"evaluation/{tag(team)}/return": 10.0 * k for team in teams}
        line |= {f"evaluation/episode/{name}": values[k] for name, values in metrics.items()}
        looks.append(json.dumps(line))
    (path / "metrics.jsonl").write_text("\n".join(looks))
    columns = [f"episode/{name}" for name in metrics]
    head = ["env_step", "episode", "team", "agent", "return", "length", *columns]
    row = ["0", "0", teams[0], "a", "1", "5", *("0.5" for _ in columns)]
    (path / "episodes.csv").write_text(f"{','.join(head)}\n{','.join(row)}\n")
    summary = {"stopped": 0, "random": dict.fromkeys(teams, 0.0), "steps": 100, "seconds": 1.0}
    summary |= {"random_metrics": {name: values[3] for name, values in metrics.items()}}
    (path / "summary.json").write_text(json.dumps(summary))
    return path


def table(folder: Path, name: str = tables.TABLE) -> list[dict[str, str]]:
    with (folder / name).open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Two algorithms, two seeds each, that win more and more; and one of another game."""
    for seed in range(2):
        for algorithm, won in (("ppo", 0.5), ("a2c", 0.9)):
            metrics = {"won": (0.1, 0.2, won + 0.1 * seed, 0.05), "food": (1.0, 2.0, 3.0, 0.0)}
            a_run(tmp_path, f"{algorithm}-{seed}", metrics, algorithm, seed=seed)
    a_run(tmp_path, "silent", {}, env="mpe/simple_reference")
    return tmp_path


@pytest.mark.slow
def test_metrics_are_columns(study: Path, capsys: pytest.CaptureFixture) -> None:
    assert main.main(["report", str(study)]) == 0
    told = {(row["env"], row["algorithm"]): row for row in table(study)}
    row = told["mpe/simple_spread", "ppo"]
    assert float(row["final_mean"]) == 20.0 and float(row["episode/won/mean"]) == 0.55
    assert float(row["episode/won/std"]) == pytest.approx(0.1 / np.sqrt(2), rel=1e-4)
    silent = told["mpe/simple_reference", "ppo"]
    assert silent["episode/won/mean"] == silent["episode/food/std"] == ""
    shown = capsys.readouterr().out
    assert " won |" in shown.splitlines()[0] and "0.55 ± 0.07" in shown
    episodes = table(study, tables.EPISODES)
    assert {row["episode/won"] for row in episodes} == {"0.5", ""}
    assert "0.55 ± 0.07" in (study / "report.html").read_text()


def test_a_metric_may_be_the_score(study: Path, capsys: pytest.CaptureFixture) -> None:
    assert main.main(["report", str(study), "--metric", "won", "--out", str(study / "by")]) == 0
    told = {row["algorithm"]: row for row in table(study / "by")}
    assert [float(told[name]["final_mean"]) for name in ("ppo", "a2c")] == [0.55, 0.95]
    assert {row["env"] for row in told.values()} == {"mpe/simple_spread"}
    assert float(told["ppo"]["scale_0"]) == 0.05 and float(told["ppo"]["scale_1"]) == 1.0
    said = capsys.readouterr().out
    assert "Left out: " in said and "silent: it has no metric 'won'" in said
    page = (study / "by" / "report.html").read_text()
    assert "Scores are means of the metric won" in page and "Over all tasks" in page


def test_a_metric_that_no_run_has_is_refused(study: Path, capsys: pytest.CaptureFixture) -> None:
    assert main.main(["report", str(study), "--metric", "wonn"]) == 2
    said = capsys.readouterr().err
    assert "no run has the metric 'wonn' (did you mean 'won'?): they have won, food" in said


def test_a_teams_metric_is_a_score_of_that_team(tmp_path: Path) -> None:
    metrics = {"red/won": (0.0, 0.5, 0.7, 0.1), "b%2Fc/won": (1.0, 0.5, 0.3, 0.9)}
    a_run(tmp_path, "one", metrics, teams=("red", "b/c"))
    study = of_folders([tmp_path], metric="won")
    assert [(task.team, task.label) for task in study.tasks] == [
        ("red", "mpe/simple_spread, red"),
        ("b/c", "mpe/simple_spread, b/c"),
    ]
    assert [row.final.tolist() for row in tables.rows(study)] == [[0.7], [0.3]]
    assert [study.random(task) for task in study.tasks[:1]] == [0.1]
    (task,) = of_folders([tmp_path], metric="red/won").tasks
    assert task.team == "red"
    # by returns, each team's row has its own
    plain = tables.rows(of_folders([tmp_path]))
    assert [row.metrics[0].tolist() for row in plain] == [[0.7], [0.3]]


def test_a_campaign_is_refused_before_it_begins(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    words = ["campaign", "ppo", "lbf/5x5-2p-1f,test/identity", "--metric", "won"]
    assert main.main([*words, "--steps", "4000", "--out", str(tmp_path / "c")]) == 2
    assert "test/identity has no metric 'won': it has none" in capsys.readouterr().err
    assert not (tmp_path / "c").exists()


@pytest.mark.slow
def test_seeds_in_one_program_say_each_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(envs.GAMES, "test/scored", Scored)
    env = Scored(length=3)
    loop = Loop(env, {TEAM: build("a2c", env, **TINY)}, games=4, window=5, steps=1000)
    states = [loop.init(seed) for seed in range(2)]
    both = jax.tree.map(lambda *x: jnp.stack(x), *states)
    _, metrics = program(loop, 3)(both, 1000.0, {})
    assert metrics.own["right"].shape == (2, 3)
    np.testing.assert_allclose(metrics.own["right"], 2 * metrics.returns[TEAM], rtol=1e-6)
    assert (metrics.own["right"][0] != metrics.own["right"][1]).any()

"""A search: trials are normal runs, an interrupted search goes on, the best becomes a preset."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from shoal.cli.main import main
from shoal.config.arguments import compose_arguments
from shoal.store import folder
from shoal.sweep import search

optuna = pytest.importorskip("optuna")
SIZES = "--games 4 --window 5 --hidden 4 --layers 1 --evaluations 1 --eval-episodes 2 --steps 100"
TOGETHER = ("--method", "population", "--together", "--out", "x")
WORDS = ["a2c", "test/identity", *SIZES.split()]


@pytest.mark.slow
def test_a_search_goes_on_and_leaves_a_preset(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trial that was chosen, but not trained, when an earlier call ended is trained."""
    out = tmp_path / "first"
    plan = search.Plan([*WORDS], ["lr=1e-3,1e-2"], judge="agent")
    (out / search.TRIALS).mkdir(parents=True)
    study = search._study(plan, out)
    chosen = study.ask({"lr": optuna.distributions.CategoricalDistribution((1e-3, 1e-2))}).params
    study.ask()  # it ended while this one was chosen
    words = ["--devices", "1", *WORDS]
    saved = {"args": words, "over": plan.over, "method": "tpe", "pruner": "median", "trials": 3}
    content = saved | {"seed": 0, "members": 8, "rounds": 5}
    (out / "sweep.json").write_text(json.dumps(content))

    assert (
        main(["sweep", *WORDS, "--over", "lr=1e-3,1e-2", "--trials", "3", "--out", str(out)]) == 0
    )
    runs = sorted(path.parent.name for path in out.glob(f"trials/*/{folder.SUMMARY}"))
    assert runs == ["trial-0000", "trial-0002"]
    first = json.loads((out / search.TRIALS / "trial-0000" / folder.CONFIG).read_text())
    assert first["teams"]["agent"]["options"]["lr"] == chosen["lr"]
    preset = tomllib.loads((out / "best.toml").read_text())
    assert preset["settings"]["games"] == 4 and preset["algorithm"]["lr"] in (1e-3, 1e-2)
    told = capsys.readouterr().out
    assert "train with the best: shoal train a2c test/identity --preset" in told

    args = ["a2c", "test/identity", "--preset", str(out / "best.toml"), "--window", "10"]
    config, messages = compose_arguments(args)
    assert (config.settings.games, config.settings.window) == (4, 10)
    assert config.teams["agent"][1].lr == preset["algorithm"]["lr"]
    assert messages[0] == f"using the preset in {out / 'best.toml'}"
    assert main(["sweep", *WORDS, "--over", "lr=1e-3,2e-2", "--out", str(out)]) == 2
    assert "has a search with over" in capsys.readouterr().err


def test_what_cannot_be_searched_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {
        ("--over", "colour=1,2", "--out", "x"): "there is no option --colour",
        ("--out", "x"): "say what to vary",
        ("--over", "lr=1e-3,1e-2"): "say where the search goes",
        ("--over", "lr=1e-3,1e-2", "--out", "x", "--seeds", "2"): "leave out --seeds",
        ("--over", "lr=1e-3..1e-2", "--method", "grid", "--out", "x"): "how many values lr has",
        ("--over", "lr=1e-3,1e-2", "--together", "--out", "x"): "say --method population",
        ("--over", "hidden=4,8", *TOGETHER): "runs that differ in hidden are different programs",
        ("--over", "critic-lr=0,1e-3", *TOGETHER): "differ in critic_lr are different programs",
    }
    for words, sentence in wrong.items():
        assert main(["sweep", *WORDS, *words]) == 2
        assert sentence in capsys.readouterr().err
    (tmp_path / "bad.toml").write_text("[colour]\nlr = 1\n")
    assert main(["train", *WORDS, "--preset", str(tmp_path / "bad.toml")]) == 2
    assert "is no preset: it has 'colour'" in capsys.readouterr().err


@pytest.mark.slow
def test_a_grid_is_tried_whole_and_bad_trials_are_pruned(tmp_path: Path) -> None:
    out = tmp_path / "grid"
    over = ["--over", "lr=1e-3,1e-2", "--over", "gamma=0.9,0.99"]
    assert main(["sweep", *WORDS, *over, "--method", "grid", "--out", str(out)]) == 0
    assert len(list(out.glob(f"trials/*/{folder.SUMMARY}"))) == 4
    assert (out / "importance.png").exists()


@pytest.mark.slow
@pytest.mark.parametrize("how", [["--together"], []])
def test_a_population_replaces_its_worst_by_forks_of_its_best(
    how: list[str], tmp_path: Path
) -> None:
    """In one compiled program, and in processes."""
    out = tmp_path / "population"
    more = ["--method", "population", "--members", "4", "--rounds", "2", "--out", str(out), *how]
    assert main(["sweep", *WORDS, "--over", "lr=1e-4..1e-1:log", *more]) == 0
    rounds = json.loads((out / "population.json").read_text())["rounds"]
    parents = [one["parent"] for one in rounds[1]]
    assert len(rounds) == 2 and len(set(parents)) == 3  # one was replaced
    for k, parent in enumerate(parents):
        run = out / search.TRIALS / f"round-01-member-{k:02d}"
        saved = json.loads((run / folder.CONFIG).read_text())
        assert saved["forked"]["run"].endswith(f"round-00-member-{parent:02d}")
        assert saved["settings"]["steps"] == 100 and folder.finished(run, 100)
        assert saved["teams"]["agent"]["options"]["anneal"] is False

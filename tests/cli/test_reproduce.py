"""`shoal reproduce` on a table of one's own: trained, gone on with, compared, and its mistakes."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import shoal
from shoal import files
from shoal.cli import main
from shoal.report import reproduction, reproduction_page
from shoal.store.folder import remove_results

SIZES = "--games 4 --window 5 --hidden 4 --layers 1"
TABLE = f"""
title = "mine"
source = "me"
protocol = "as I like it"
evaluations = 4
episodes = 3
score = "best"
final_episodes = 5

[algorithms]
A = {{ train = "a2c {SIZES}", budget = "on" }}
Q = {{ train = "dqn {SIZES} --warmup 20 --capacity 200 --batch 4", budget = "off", \
actions = "greedy" }}

[[tasks]]
name = "Easy"
train = "test/identity"
scale = [2, 0]
steps = {{ on = 400, off = 200 }}
published = {{ A = 99, Q = -99 }}

[[tasks]]
name = "Eaten"
train = "lbf/5x5-2p-1f"
metric = "food"
scale = [100, 0]
steps = {{ on = 400, off = 200 }}
published = {{ A = 50 }}

[[tasks]]
name = "Gone"
missing = "it is gone"
steps = {{ on = 400, off = 200 }}
published = {{ A = 1 }}
"""


class Made(NamedTuple):
    """A table that was reproduced in two commands."""

    folder: Path
    first: str
    second: str


def call(*words: str, out: Path | None = None) -> tuple[int, str, str]:
    told = io.StringIO()
    err = io.StringIO()
    where = ["--out", str(out)] if out else []
    with contextlib.redirect_stdout(told), contextlib.redirect_stderr(err):
        code = main.main(["reproduce", *words, *where])
    return code, told.getvalue(), err.getvalue()


def records_of(folder: Path) -> list[dict[str, Any]]:
    return json.loads((folder / reproduction.RECORDS).read_text())["runs"]


def _without_clocks(records: list[dict[str, Any]]) -> list[tuple]:
    return sorted((one["task"], one["seed"], one["curve"], one["final"]) for one in records)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    """First one task with two seeds, then everything with the first seed."""
    folder = tmp_path_factory.mktemp("reproduced")
    (folder / "mine.toml").write_text(TABLE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        code, first, err = call("mine.toml", "--tasks", "easy", "--algorithms", "A", "--seeds", "2")
        assert code == 0, err
        code, second, err = call("mine.toml", "--seeds", "1", "--budget", "1.0")
        assert code == 0, err
        yield Made(folder / "campaigns" / "mine", first, second)


@pytest.mark.slow
def test_only_what_is_missing_is_trained(made: Made) -> None:
    assert "mine: 2 runs of 800 steps in all in campaigns/mine, 0 of them finished" in made.first
    assert "mine: 3 runs of 1,000 steps in all in campaigns/mine, 1 of them finished" in made.second
    assert "A-Easy_400_steps_sampled-0: finished" in made.first
    assert "A-Easy_400_steps_sampled-0" not in made.second
    assert len(list((made.folder / "runs").glob("*/summary.json"))) == 4


@pytest.mark.slow
def test_the_records_are_what_the_runs_say(made: Made) -> None:
    records = records_of(made.folder)
    assert len(records) == 4
    run = made.folder / "runs" / "A-Easy_400_steps_sampled-1"
    mine = next(one for one in records if (one["task"], one["seed"]) == ("Easy", 1))
    assert len(mine["curve"]) == 4
    assert mine["final"] == shoal.load(run).evaluate(5).score()["agent"]
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    key = "evaluation/agent/return"
    assert mine["curve"] == [line[key] for line in lines if key in line]


@pytest.mark.slow
def test_a_metric_is_the_score_where_the_table_says_so(made: Made) -> None:
    records = records_of(made.folder)
    mine = next(one for one in records if one["task"] == "Eaten")
    summary = json.loads(
        (made.folder / "runs" / "A-Eaten_400_steps_sampled-0" / "summary.json").read_text()
    )
    assert mine["final"] == summary["final_metrics"]["food"]
    assert mine["curve"][-1] == summary["metrics"]["food"]


@pytest.mark.slow
def test_numbers_are_printed_and_written_beside_the_published_ones(made: Made) -> None:
    text = (made.folder / reproduction.TEXT).read_text()
    assert text in made.second and "By their protocol: 0 ahead, 0 level, 1 behind" in text
    assert "3 of 4 published numbers have runs of ours." in text
    assert "Gone is not reproduced: it is gone." in text
    assert "Gone" in (made.folder / reproduction_page.PAGE).read_text()


@pytest.mark.slow
def test_what_is_recorded_needs_no_run_folder(made: Made, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    shutil.copytree(made.folder, kept, ignore=shutil.ignore_patterns("runs"))
    table = str(made.folder.parent.parent / "mine.toml")
    code, told, _ = call(table, "--seeds", "1", out=kept)
    assert code == 0 and "3 runs of 1,000 steps in all" in told and ", 3 of them finished" in told
    assert (kept / reproduction.TEXT).read_text() == (made.folder / reproduction.TEXT).read_text()


@pytest.mark.slow
def test_a_run_that_failed_is_told_of(made: Made, tmp_path: Path) -> None:
    """Its folder is in the way, so it cannot be trained."""
    kept = tmp_path / "kept"
    shutil.copytree(made.folder, kept, ignore=shutil.ignore_patterns("runs"))
    (kept / "runs" / "Q-Easy_200_steps_greedy-1").mkdir(parents=True)
    (kept / "runs" / "Q-Easy_200_steps_greedy-1" / "mine.txt").write_text("keep me")
    table = str(made.folder.parent.parent / "mine.toml")
    code, told, _ = call(table, "--algorithms", "Q", "--seeds", "2", out=kept)
    assert code == 1 and "Not counted: Q on Easy, 200 steps, greedy, seed 1: it never began" in told


@pytest.mark.slow
def test_an_interrupted_run_goes_on(made: Made, tmp_path: Path) -> None:
    kept = shutil.copytree(made.folder, tmp_path / "kept")
    path = kept / "runs" / "A-Easy_400_steps_sampled-1"
    remove_results(path)
    shutil.rmtree(max((path / "checkpoints").iterdir()))  # the one of its end
    before = records_of(kept)
    gone = [one for one in before if (one["task"], one["seed"]) != ("Easy", 1)]
    files.write_json(kept / reproduction.RECORDS, {"table": "mine", "runs": gone})
    table = str(made.folder.parent.parent / "mine.toml")
    code, told, err = call(table, "--tasks", "Easy", "--algorithms", "A", "--seeds", "2", out=kept)
    assert code == 0 and ", 1 of them finished already" in told, err
    assert "resuming" in path.with_suffix(".txt").read_text()
    assert len(gone) < len(before) and _without_clocks(records_of(kept)) == _without_clocks(before)


@pytest.mark.slow
def test_other_settings_are_refused_or_trained_anew(made: Made, tmp_path: Path) -> None:
    kept = shutil.copytree(made.folder, tmp_path / "kept")
    content = json.loads((kept / "campaign.json").read_text())
    pair = next(one for one in content["pairs"] if one["algorithm"] == "Q")
    del pair["config"]["settings"]["final_episodes"]  # as an older version would have saved it
    pair["config"]["teams"]["agent"]["options"]["lr"] = 0.25
    files.write_json(kept / "campaign.json", content)
    table = str(made.folder.parent.parent / "mine.toml")
    words = (table, "--tasks", "Easy", "--algorithms", "Q", "--seeds", "1")
    code, _, err = call(*words, out=kept)
    assert code == 2 and "with lr 0.25, not " in err and "or train it anew with --again" in err
    code, told, err = call(*words, "--again", out=kept)
    assert code == 0 and "1 run of 200 steps in all" in told and ", 0 of them finished" in told
    assert len(records_of(kept)) == len(records_of(made.folder))
    code, told, err = call(*words, out=kept)
    assert code == 0 and ", 1 of them finished" in told


@pytest.mark.slow
def test_the_folder_is_a_campaign(made: Made) -> None:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        assert main.main(["report", str(made.folder)]) == 0
    assert "Easy, 400 steps, sampled" in out.getvalue()


MISTAKES = {
    "no table": ([], "say which table: shoal reproduce <table>, of mpe, papoudakis2021"),
    "unknown table": (["papoudakis2012"], "did you mean 'papoudakis2021'?"),
    "no such file": (["nowhere.toml"], "nowhere.toml cannot be read"),
    "unknown task": (["mpe", "--tasks", "Spred"], "mpe has no task 'Spred'"),
    "unknown algorithm": (["mpe", "--algorithms", "MAPO"], "did you mean 'MAPPO'?"),
    "no native game": (["papoudakis2021", "--tasks", "Tag"], "Tag of papoudakis2021 cannot be"),
    "no budget": (["mpe", "--budget", "0"], "budget must be a share of the published steps"),
    "budget is no number": (["mpe", "--budget", "nan"], "budget must be a share"),
    "too large a budget": (["mpe", "--budget", "1e6"], "at most 100, not 1000000.0"),
    "too small a budget": (["mpe", "--budget", "1e-9"], "too few"),
    "no seeds": (["mpe", "--seeds", "0"], "seeds must be at least 1"),
    "negative jobs": (["mpe", "--jobs", "-1"], "jobs must not be negative"),
    "unknown option": (["mpe", "--job", "1"], "did you mean --jobs?"),
    "a word too many": (["mpe", "smax"], "'smax' is one word too many"),
    "a folder of something else": (["mpe", "--out", "taken"], "exists already and is no campaign"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_told_in_one_sentence(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "mine.txt").write_text("mine")
    words, told = MISTAKES[case]
    code, _, err = call(*words)
    assert code == 2 and told in err and err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


@pytest.mark.slow
def test_another_table_in_the_folder_is_refused(made: Made) -> None:
    code, _, err = call("mpe", "--algorithms", "MAPPO", out=made.folder)
    assert code == 2 and "has runs of 'mine', not of 'mpe': choose another --out" in err


def test_tables_are_listed() -> None:
    code, told, _ = call("--list")
    assert code == 0 and "papoudakis2021: " in told and "smax: " in told
    code, told, _ = call("papoudakis2021", "--list")
    assert code == 0 and "matrix/climbing" in told and "not reproduced: its adversary" in told

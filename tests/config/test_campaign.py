"""Campaigns: a real one killed and continued, its report, and what is refused."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from shoal.cli import main
from shoal.config import campaign as planning
from shoal.config.campaign_words import listed
from shoal.errors import ShoalError
from shoal.report import results, tables

SIZES = {"steps": 240, "games": 4, "window": 5, "eval-episodes": 3, "evaluations": 2, "hidden": 4}
WHAT = ["a2c,ppo", "test/identity,matrix/matching_pennies", "--seeds", "2"]
WORDS = [*WHAT, *(word for name, value in SIZES.items() for word in (f"--{name}", str(value)))]
RUNS = 8


class Killed(NamedTuple):
    """A campaign that was killed in the middle and then continued."""

    folder: Path
    done: dict[Path, dict]  # what was finished at the kill, and all it held
    told: str  # by the continuation


def finished(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("runs/*/summary.json"))


def contents(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """Every file of a run: when it was written, and what it is."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def table(folder: Path) -> list[dict[str, str]]:
    """All but how long it took."""
    with (folder / tables.TABLE).open(newline="") as file:
        return [
            {name: cell for name, cell in row.items() if "second" not in name}
            for row in csv.DictReader(file)
        ]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    folder = tmp_path_factory.mktemp("campaigns") / "killed"
    process = subprocess.Popen(
        [sys.executable, "-m", "shoal", "campaign", *WORDS, "--out", str(folder)]
    )
    while len(finished(folder)) < 3:
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    time.sleep(0.5)  # its children die with it
    done = {run: contents(run) for run in finished(folder)}
    assert len(done) < RUNS and not (folder / tables.TABLE).exists()
    with contextlib.redirect_stdout(io.StringIO()) as told:
        assert main.main(["resume", str(folder)]) == 0
    return Killed(folder, done, told.getvalue())


@pytest.fixture
def whole(killed: Killed) -> Path:
    return killed.folder


@pytest.mark.slow
def test_a_campaign_goes_on_and_leaves_alone_what_was_finished(killed: Killed):
    assert (
        f"campaign of {RUNS} runs in {killed.folder}, {len(killed.done)} of them finished already"
        in killed.told
    )
    assert len(finished(killed.folder)) == RUNS and "| final IQM |" in killed.told
    assert {run: contents(run) for run in killed.done} == killed.done


@pytest.mark.slow
def test_a_campaign_killed_in_the_middle_ends_as_runs_that_nobody_disturbed(
    killed: Killed, tmp_path: Path
):
    plan = planning.load(killed.folder)
    planning.save(plan, tmp_path)
    for job in plan.jobs(tmp_path):
        assert (
            main.main(["train", *job.args, "--out", str(job.path.parent), "--name", job.path.name])
            == 0
        )
    assert main.main(["report", str(tmp_path)]) == 0
    assert table(tmp_path) == table(killed.folder)


@pytest.mark.slow
def test_the_files_say_what_the_runs_say(whole: Path):
    rows = table(whole)
    assert [(row["env"], row["team"], row["algorithm"]) for row in rows] == [
        (env, team, algorithm)
        for env, team in [
            ("test/identity", "agent"),
            *[("matrix/matching_pennies", team) for team in ("even", "odd")],
        ]
        for algorithm in ("a2c", "ppo")
    ]
    scores = [
        json.loads((whole / f"runs/ppo-test__identity-{seed}/summary.json").read_text())
        for seed in range(2)
    ]
    mine = next(row for row in rows if (row["env"], row["algorithm"]) == ("test/identity", "ppo"))
    final = [score["scores"]["agent"] for score in scores]
    assert float(mine["final_mean"]) == pytest.approx(np.mean(final))
    assert float(mine["final_std"]) == pytest.approx(np.std(final, ddof=1), abs=1e-6)
    assert float(mine["best_mean"]) >= float(mine["final_mean"]) and mine["seeds"] == "2"
    with (whole / tables.EPISODES).open(newline="") as file:
        episodes = list(csv.DictReader(file))
    agents = {"test/identity": 2, "matrix/matching_pennies": 2}
    evaluations = SIZES["evaluations"] + 2
    assert len(episodes) == sum(
        4 * evaluations * SIZES["eval-episodes"] * number for number in agents.values()
    )
    assert {row["run"] for row in episodes} == {
        str(run.relative_to(whole)) for run in finished(whole)
    }


@pytest.mark.slow
def test_the_report_stands_alone(whole: Path):
    page = (whole / "report.html").read_text()
    assert "http" not in page and "src=" not in page and "@import" not in page and "url(#" in page
    links = re.findall(r'href="([^"#]+)"', page)
    assert len(links) == 4 + 4 * 2 and all((whole / link).is_dir() for link in links)
    assert "Few seeds: some rows have only 2 seeds" in page
    assert "other teams learn too" in page  # so that matching pennies is in no aggregate
    assert page.count("<svg") == 4  # curves, over all tasks, profiles, improvement


@pytest.mark.slow
def test_a_failed_run_is_told_and_not_counted(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    folder = tmp_path / "damaged"
    shutil.copytree(whole, folder)
    (folder / "runs/ppo-test__identity-0/summary.json").unlink()
    metrics = folder / "runs/a2c-test__identity-1/metrics.jsonl"
    metrics.write_text(
        re.sub(
            r'"evaluation/agent/return": [^,]+',
            '"evaluation/agent/return": null',
            metrics.read_text(),
        )
    )
    assert main.main(["report", str(folder)]) == 1
    told = capsys.readouterr().out
    assert "a2c on test/identity, seed 1: its scores are no numbers" in told
    assert (
        "ppo on test/identity, seed 0: it is not finished" in told
        and "One seed has no interval" in told
    )
    row = table(folder)[0]
    assert (row["seeds"], row["failed"], row["iqm_low"], row["final_std"]) == ("1", "1", "", "")


@pytest.mark.slow
def test_any_folder_of_runs_can_be_reported(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture
):
    for seed in range(2):
        shutil.copytree(
            whole / f"runs/ppo-test__identity-{seed}", tmp_path / "runs" / f"mine-{seed}"
        )
    assert main.main(["report", str(tmp_path / "runs")]) == 0
    (row,) = table(tmp_path / "runs")
    assert row == table(whole)[1] | {
        "scale_1": row["scale_1"],
        "random": row["random"],
        "scale_0": row["scale_0"],
    }
    again = tmp_path / "runs" / "twin"
    shutil.copytree(tmp_path / "runs" / "mine-0", again)
    assert main.main(["report", str(tmp_path / "runs")]) == 0  # nobody counts twice
    assert (
        "Left out: " in (said := capsys.readouterr().out)
        and "twin: it is the same run with the same seed" in said
    )
    assert table(tmp_path / "runs") == [row]
    config = json.loads((again / "config.json").read_text())
    (again / "config.json").write_text(
        json.dumps(config | {"settings": config["settings"] | {"evaluations": 5}})
    )
    # evaluated otherwise, it is another task
    assert main.main(["report", str(tmp_path / "runs")]) == 0
    rows = [(row["env"], row["seeds"]) for row in table(tmp_path / "runs")]
    assert rows == [("test/identity evaluations=2", "2"), ("test/identity evaluations=5", "1")]
    capsys.readouterr()
    assert main.main(["report", str(again)]) == 2
    assert "is one run" in capsys.readouterr().err


def test_runs_that_differ_are_told_apart():
    plain, other = {"lr": 0.1, "hidden": 8}, {"lr": 0.2, "hidden": 8}
    named = [("ppo", plain), ("ppo", other), ("a2c", plain)]
    assert results.labels(named) == ["ppo lr=0.1", "ppo lr=0.2", "a2c"]


# -- plans -----------------------------------------------------------------------------------------


def made(words: str, seeds: str = "2", *options: str) -> planning.Plan:
    sizes = [word for name, value in SIZES.items() for word in (f"--{name}", str(value))]
    return planning.made(
        listed(words),
        listed("test/identity"),
        planning.numbers(seeds),
        [*sizes, *options],
    )


def test_a_campaign_may_grow_but_not_change(tmp_path: Path):
    before = made("ppo")
    grown = made("ppo,a2c", "3").merged(before, tmp_path)
    assert [(pair.algorithm, pair.seeds) for pair in grown.pairs] == [
        ("ppo", [0, 1, 2]),
        ("a2c", [0, 1, 2]),
    ]
    assert made("a2c").merged(before, tmp_path).pairs[0] == before.pairs[0]  # what is there stays
    with pytest.raises(
        planning.ShoalError,
        match=r"has ppo on test/identity with lr 0\.\d+,"
        r" not 0\.5",
    ):
        made("ppo", "2", "--lr", "0.5").merged(before, tmp_path)
    planning.save(grown, tmp_path)
    assert planning.load(tmp_path) == grown


def test_options_that_came_later_are_at_their_defaults(tmp_path: Path):
    """So an older campaign may grow; what differs from them is another run."""
    before = made("ppo")
    (pair,) = before.pairs
    del pair.config["settings"]["final_episodes"], pair.config["teams"]["agent"]["options"]["clip"]
    assert made("ppo", "3").merged(before, tmp_path).pairs[0].seeds == [0, 1, 2]
    for option, told in (("--final-episodes", "final_episodes 0, not 7"), ("--clip", "clip 0.2")):
        with pytest.raises(planning.ShoalError, match=told):
            made("ppo", "2", option, "7" if option != "--clip" else "0.7").merged(before, tmp_path)


def test_a_file_says_what_flags_cannot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from shoal.cli.campaign import _own, _planned

    monkeypatch.chdir(tmp_path)
    Path("tag.toml").write_text("""
        seeds = [3, 5]
        envs = ["mpe/simple_tag"]
        [algorithms]
        hunters = "--team adversary=ppo --team agent=random --adversary.lr 0.01"
        [options]
        steps = 4e4
        greedy = false
        [scales]
        "mpe/simple_tag adversary" = [0, 50]
    """)
    how, names, options = _own(["tag.toml", "--evaluations", "3", "--steps", "50_000"])
    folder, plan = _planned(how, names, options)  # flags beside a file win
    (pair,) = planning.checked(plan).pairs
    assert (
        folder == Path("tag")
        and pair.seeds == [3, 5]
        and pair.config["settings"]["evaluations"] == 3
    )
    assert pair.config["settings"]["steps"] == 50_000 and not pair.config["settings"]["greedy"]
    assert pair.config["teams"]["adversary"]["options"]["lr"] == 0.01
    with pytest.raises(
        ShoalError,
        match=r"\[scales\] has 'mpe/simple_tag adversery' .did you mean '.* adversary'",
    ):
        planning.checked(replace(plan, scales={"mpe/simple_tag adversery": [0.0, 1.0]}))
    study = results.of_campaign(folder, plan)
    tag = study.tasks[0]
    assert (
        study.scale(tag) == (0, 50) and study.why_not(study.tasks[1]) == "this team does not learn"
    )
    assert study.runs[0].failure == "it never began"


MISTAKES = {
    "nothing": ([], "say what to train on what"),
    "no place": (["ppo", "test/identity"], "--out campaigns/first"),
    "unknown algorithm": (["ppo,qmx", "test/identity", "--out", "c"], "did you mean 'qmix'"),
    "an algorithm that cannot play": (
        ["qmix", "test/continuous_identity", "--out", "c"],
        "choose another algorithm",
    ),
    "an option not all have": (
        ["ppo,qmix", "test/identity", "--out", "c", "--clip", "0.1"],
        "qmix on test/identity",
    ),
    "different lengths": (
        ["mappo,qmix", "mpe/simple_spread", "--out", "c"],
        "give all of them the same --steps",
    ),
    "a seed": (["ppo", "test/identity", "--out", "c", "--seed", "1"], "--seeds says which"),
    "no seeds": (["ppo", "test/identity", "--out", "c", "--seeds", "0"], "seeds must be"),
    "too many seeds": (
        ["ppo", "test/identity", "--out", "c", "--seeds", "1000000000"],
        "at most 1,000",
    ),
    "no commas": (["ppo", "test/identity", "test/mortal", "--out", "c"], "a list with commas"),
    "the same twice": (["ppo,ppo", "test/identity", "--out", "c"], "says something twice"),
    "an empty place": (["ppo,", "test/identity", "--out", "c"], "single commas"),
    "no campaign": (["nowhere"], "neither a campaign's folder nor a .toml file"),
    "no file": (["nowhere.toml"], "cannot be read"),
    "something else there": (["ppo", "test/identity", "--out", "."], "is no campaign"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence_and_starts_nothing(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture
):
    monkeypatch.chdir(tmp_path)
    Path("mine.txt").write_text("")
    words, expected = MISTAKES[mistake]
    assert main.main(["campaign", *words]) == 2
    out, err = capfd.readouterr()
    assert out == "" and err.count("\n") == 1 and expected in err, err
    assert os.listdir() == ["mine.txt"]


@pytest.mark.slow
def test_a_folder_says_all_itself(whole: Path, capfd: pytest.CaptureFixture):
    assert main.main(["campaign", str(whole), "--steps", "100"]) == 2
    assert "nothing else but --at-once" in capfd.readouterr().err
    words = [word if word != str(SIZES["steps"]) else "480" for word in WORDS]
    assert main.main(["campaign", *words, "--out", str(whole)]) == 2
    assert "with steps 240, not 480: choose another --out" in capfd.readouterr().err

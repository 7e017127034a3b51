"""Campaigns: the statistics, a real campaign killed and continued, the report, and what is
refused."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from places import ROOT
from scipy.stats import mannwhitneyu, trim_mean

from shoal.cli import main
from shoal.config import campaign as planning
from shoal.config.settings import Settings
from shoal.errors import ShoalError
from shoal.report import results, statistics, tables
from shoal.report.statistics import estimate, improvement, iqm, profile

SIZES = {"steps": 240, "games": 4, "window": 5, "eval-episodes": 3, "evaluations": 2, "hidden": 4}
WHAT = ["a2c,ppo", "test/identity,matrix/matching_pennies", "--seeds", "2"]
WORDS = [*WHAT, *(word for name, value in SIZES.items() for word in (f"--{name}", str(value)))]
RUNS = 8
# Two algorithms, three tasks, five seeds; what rliable 1.2.0 says of them is below.
ONE = [
    [0.63, 0.62, 0.86, 0.35, 0.13],
    [0.57, 0.49, 0.79, 0.48, 0.56],
    [0.73, 0.67, 0.46, 0.61, 0.35],
]
OTHER = [
    [0.35, 0.58, 0.77, 0.68, 0.32],
    [0.39, 0.71, 0.37, 0.52, 0.41],
    [0.44, 0.47, 0.57, 0.35, 0.54],
]


def strata(rows: list[list[float]]) -> list[np.ndarray]:
    return [np.array(row) for row in rows]


# -- statistics ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seeds", [1, 2, 3, 4, 5, 10, 31])
def test_the_interquartile_mean_is_the_mean_of_the_middle_half(seeds: int):
    scores = np.random.default_rng(seeds).normal(size=seeds)
    cut = seeds // 4
    assert iqm(scores) == pytest.approx(np.sort(scores)[cut : seeds - cut].mean())
    assert iqm(scores) == pytest.approx(trim_mean(scores, 0.25))


def test_estimates_agree_with_rliable():
    guess = estimate(strata(ONE))
    assert float(guess.value) == pytest.approx(0.56555556)
    assert [guess.low, guess.high] == pytest.approx([0.4689, 0.6522], abs=0.01)
    chance = improvement(strata(ONE), strata(OTHER))
    assert float(chance.value) == pytest.approx(0.65333333)
    assert [chance.low, chance.high] == pytest.approx([0.44, 0.8467], abs=0.02)
    shares = profile(strata(ONE), np.array([0.25, 0.5, 0.75]))
    assert shares.value == pytest.approx([0.93333333, 0.6, 0.13333333])
    assert shares.low == pytest.approx([0.8, 0.33333333, 0.0], abs=0.07)


def test_the_chance_to_beat_somebody_is_the_mann_whitney_statistic():
    one, other = strata(ONE)[0], strata(OTHER)[1]
    expected = mannwhitneyu(one, other).statistic / (len(one) * len(other))
    assert float(improvement([one], [other]).value) == pytest.approx(float(expected))
    assert float(improvement([one], [one]).value) == 0.5  # a draw counts half


def test_intervals_hold_the_truth_as_often_as_they_say(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(statistics, "RESAMPLES", 400)
    rng, held = np.random.default_rng(0), 0
    for _ in range(200):
        guess = estimate([rng.normal(task, 1, 20) for task in range(3)], statistics.mean)
        assert guess.low is not None and guess.high is not None
        held += bool(guess.low <= 1.0 <= guess.high)
    assert 0.89 <= held / 200 <= 0.99


def test_a_profile_falls_from_one_to_nothing():
    levels = np.linspace(-0.1, 1.0, 50)
    shares = profile([*strata(ONE), np.array([0.2, 0.9])], levels)  # a task may have fewer seeds
    for each in shares:
        assert each is not None and (np.diff(each) <= 0).all() and each[0] == 1 and each[-1] == 0


def test_one_seed_has_no_interval():
    assert estimate([np.array([1.0, 2.0]), np.array([3.0])]).low is None
    assert estimate([np.array([1.0, 2.0]), np.array([3.0, 3.0])]).low is not None


# -- a real campaign -------------------------------------------------------------------------------


CACHE = {  # the compiled programs of all tests, in processes of their own
    "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".cache" / "xla"),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
}


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
def killed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Killed]:
    folder = tmp_path_factory.mktemp("campaigns") / "killed"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in CACHE.items():
            patch.setenv(name, value)
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
        yield Killed(folder, done, told.getvalue())


@pytest.fixture
def whole(killed: Killed) -> Path:
    return killed.folder


def test_a_campaign_goes_on_and_leaves_alone_what_was_finished(killed: Killed):
    assert (
        f"campaign of {RUNS} runs in {killed.folder}, {len(killed.done)} of them finished already"
        in killed.told
    )
    assert len(finished(killed.folder)) == RUNS and "| final IQM |" in killed.told
    assert {run: contents(run) for run in killed.done} == killed.done


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


def test_the_report_stands_alone(whole: Path):
    page = (whole / "report.html").read_text()
    assert "http" not in page and "src=" not in page and "@import" not in page and "url(#" in page
    links = re.findall(r'href="([^"#]+)"', page)
    assert len(links) == 4 + 4 * 2 and all((whole / link).is_dir() for link in links)
    assert "Few seeds: some rows have only 2 seeds" in page
    assert "other teams learn too" in page  # so that matching pennies is in no aggregate
    assert page.count("<svg") == 4  # curves, over all tasks, profiles, improvement


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


def a_run(
    folder: Path, name: str, algorithm: str = "ppo", env: str = "mpe/simple_spread", **changes: Any
) -> Path:
    """A finished run that nobody trained; `changes` are options of its algorithm, or settings."""
    settings = dataclasses.asdict(Settings()) | {
        "steps": 100,
        "evaluations": 1,
        "out": str(folder),
        "name": name,
    }
    settings |= {key: value for key, value in changes.items() if key in settings}
    options = {"lr": 0.1, "hidden": 8} | {
        key: value for key, value in changes.items() if key not in settings
    }
    # as a game on the host has
    spec = {"agents": [f"{env}_{i}" for i in range(50)], "obs": len(env)}
    side = {"algorithm": algorithm, "options": options, "spec": spec, "origin": {"sha256": name}}
    path = folder / name
    path.mkdir(parents=True)
    saved = {
        "env": env,
        "options": {},
        "teams": {"agent": side},
        "settings": settings,
        "protocol": {},
    }
    (path / "config.json").write_text(json.dumps(saved))
    looks = [
        {"env_step": s, "evaluation/agent/return": s / 10, "evaluation/length": 5}
        for s in (0, 50, 100)
    ]
    (path / "metrics.jsonl").write_text("\n".join(map(json.dumps, looks)))
    (path / "episodes.csv").write_text(
        "env_step,episode,team,agent,return,length\n0,0,agent,a,1,5\n"
    )
    summary = {"stopped": 0, "random": {"agent": 0.0}, "steps": 100, "seconds": 1.0}
    (path / "summary.json").write_text(json.dumps(summary))
    return path


def test_labels_name_only_what_differs(tmp_path: Path):
    """Not what an environment is like, nor where a run lies or how it was watched; few options
    where they suffice."""
    for seed, env in enumerate(("mpe/simple_spread", "gym:CartPole-v1", "pz:mpe2.simple_tag_v3")):
        a_run(tmp_path, f"plain-{seed}", env=env, seed=seed, lr=0.1 * (seed + 1))
    a_run(tmp_path, "alone", seed=7, devices=1, keep=5, track="wandb", save_every=10, workers=0)
    a_run(tmp_path, "other", "dqn", seed=1, hidden=8)
    many: dict[str, Any] = {"lr": 0.5, "hidden": 9, "layers": 3, "gamma": 0.5, "torso": "gru"}
    a_run(tmp_path, "tuned", "dqn", seed=1, **many)
    a_run(tmp_path, "long", seed=1, steps=2_000_000)
    study = results.of_folders([tmp_path])
    assert {(run.env, run.algorithm) for run in study.runs} == {
        ("gym:CartPole-v1", "ppo"),
        ("pz:mpe2.simple_tag_v3", "ppo"),
        ("mpe/simple_spread steps=100", "ppo"),
        ("mpe/simple_spread steps=100", "dqn lr=0.1"),
        ("mpe/simple_spread steps=100", "dqn lr=0.5"),
        ("mpe/simple_spread steps=2,000,000", "ppo"),
    }
    assert not study.left and len(study.runs) == 7


def test_runs_that_cannot_be_reported_are_listed_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture
):
    for seed in range(2):
        a_run(tmp_path / "runs", f"run-{seed}", seed=seed)
    twin = a_run(tmp_path / "runs", "a-twin", seed=0)
    (twin / "summary.json").unlink()  # the one that is finished counts, whichever comes first
    a_run(tmp_path / "runs", "mine", "my_own")
    for name, text in {
        "torn": "{",
        "empty": "{}",
        "bare": '{"settings": {"seed": 0}, "teams": []}',
    }.items():
        (a_run(tmp_path / "runs", name) / "config.json").write_text(text)
    assert main.main(["report", str(tmp_path / "runs")]) == 0
    said = capsys.readouterr().out
    assert (
        "a-twin: it is the same run with the same seed as " in said
        and "no algorithm 'my_own'" in said
    )
    assert all(f"{tmp_path / 'runs' / name}" in said for name in ("torn", "empty", "bare"))
    (row,) = table(tmp_path / "runs")
    assert (row["algorithm"], row["seeds"], row["failed"]) == ("ppo", "2", "0")
    assert "my_own" in (tmp_path / "runs" / "report.html").read_text()


def changed(name: str, **values: Any) -> Callable[[Path], Any]:
    """Other values in a JSON file of a run."""

    def change(run: Path) -> None:
        content = json.loads((run / name).read_text())
        (content["settings"] if name == "config.json" else content).update(values)
        (run / name).write_text(json.dumps(content))

    return change


def replaced(name: str, text: str | bytes) -> Callable[[Path], Any]:
    return lambda run: (run / name).write_bytes(text.encode() if isinstance(text, str) else text)


def piped(name: str) -> Callable[[Path], Any]:
    return lambda run: ((run / name).unlink(missing_ok=True), os.mkfifo(run / name))


@pytest.mark.parametrize(
    "damage",
    [
        *(replaced("metrics.jsonl", text) for text in ("", "5\n", "null\n", "[" * 10**5, b"\xff")),
        replaced("metrics.jsonl", '{"evaluation/length": 1, "env_step": "x"}\n'),
        replaced("metrics.jsonl", '{"evaluation/length": 1, "env_step": 1e400}\n'),
        replaced("summary.json", "[]"),
        *(changed("summary.json", random=value) for value in (None, [1], {"agent": "x"}, {})),
        changed("summary.json", steps="many"),
        changed("summary.json", seconds=None),
        *(changed("config.json", seed=value) for value in ("x", [1])),
        changed("config.json", evaluations=10**10),
        changed("config.json", steps=float("inf")),
        replaced("episodes.csv", b"\xff\x00"),
        replaced("episodes.csv", "x" * 200_000),
        lambda run: (run / "episodes.csv").unlink(missing_ok=True),
        *(piped(name) for name in ("metrics.jsonl", "episodes.csv", "summary.json")),
    ],
)
def test_one_damaged_run_does_not_spoil_the_report(
    damage: Callable[[Path], Any], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    for seed in range(2):
        a_run(tmp_path / "runs", f"run-{seed}", seed=seed)
    damage(a_run(tmp_path / "runs", "damaged", seed=2))
    assert main.main(["report", str(tmp_path / "runs")]) in (0, 1)
    (row,) = table(tmp_path / "runs")
    assert row["seeds"] == "2" and "Traceback" not in capsys.readouterr().err


def test_a_name_may_look_like_a_formula(tmp_path: Path) -> None:
    run = a_run(tmp_path / "runs", "run")
    content = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(content | {"env": "$\\frac{$_a"}))
    assert main.main(["report", str(tmp_path / "runs")]) == 0


def test_a_report_may_be_of_several_folders_a_selection_and_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture
):
    for place, algorithm in (("one", "ppo"), ("two", "mappo"), ("two", "dqn")):
        for seed in range(2):
            a_run(
                tmp_path / place,
                f"{algorithm}-{seed}",
                algorithm,
                seed=seed,
                lr=0.1 + 0.1 * (algorithm == "dqn"),
            )
    folders = [str(tmp_path / "one"), str(tmp_path / "two")]
    assert main.main(["report", *folders]) == 2 and "--out <folder>" in capsys.readouterr().err
    out = tmp_path / "deep" / "report"
    assert main.main(["report", *folders, "--out", str(out), "--algorithms", "ippo,m*"]) == 0
    assert [row["algorithm"] for row in table(out)] == ["mappo", "ppo"]
    assert (
        list(tmp_path.glob("one/*.html")) == []
        and (out / "curves.png").read_bytes()[:4] == b"\x89PNG"
    )
    pictures = {"curves", "scores", "profiles", "improvement"}
    kept = {path.name: path.read_bytes() for path in (out / "figures").iterdir()}
    assert set(kept) == {f"{name}{kind}" for name in pictures for kind in (".svg", ".pdf")}
    assert all(
        kept[f"{name}.pdf"][:4] == b"%PDF" and b"<svg" in kept[f"{name}.svg"] for name in pictures
    )
    assert (
        main.main(["report", *folders, "--out", str(out), "--only", "two", "--envs", "mpe/*"]) == 0
    )
    assert [row["algorithm"] for row in table(out)] == ["dqn", "mappo"]
    capsys.readouterr()
    assert main.main(["report", *folders, "--out", str(out), "--only", "nobody"]) == 2
    assert "no run is left to report" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert main.main(["report", *folders, "--out", str(tmp_path / "file" / "x")]) == 2
    assert "cannot be written to" in (said := capsys.readouterr().err) and said.count("\n") == 1


def test_runs_that_differ_are_told_apart():
    plain, other = {"lr": 0.1, "hidden": 8}, {"lr": 0.2, "hidden": 8}
    named = [("ppo", plain), ("ppo", other), ("a2c", plain)]
    assert results.labels(named) == ["ppo lr=0.1", "ppo lr=0.2", "a2c"]


# -- plans -----------------------------------------------------------------------------------------


def made(words: str, seeds: str = "2", *options: str) -> planning.Plan:
    sizes = [word for name, value in SIZES.items() for word in (f"--{name}", str(value))]
    return planning.made(
        planning.listed(words),
        planning.listed("test/identity"),
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
        match=r"\[scales\] has 'mpe/simple_tag adversery', did you"
        r" mean '.* adversary'",
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


def test_a_folder_says_all_itself(whole: Path, capfd: pytest.CaptureFixture):
    assert main.main(["campaign", str(whole), "--steps", "100"]) == 2
    assert "nothing else but --at-once" in capfd.readouterr().err
    words = [word if word != str(SIZES["steps"]) else "480" for word in WORDS]
    assert main.main(["campaign", *words, "--out", str(whole)]) == 2
    assert "with steps 240, not 480: choose another --out" in capfd.readouterr().err

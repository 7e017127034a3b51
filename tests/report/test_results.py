"""Reports on any folder of runs: labels, what is left out, damaged runs, selections."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from helpers import quick

from shoal.cli import main
from shoal.config.settings import Settings
from shoal.report import results, tables


def table(folder: Path) -> list[dict[str, str]]:
    """All but how long it took."""
    with (folder / tables.TABLE).open(newline="") as file:
        return [
            {name: cell for name, cell in row.items() if "second" not in name}
            for row in csv.DictReader(file)
        ]


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
    quick(
        [
            *(
                replaced("metrics.jsonl", text)
                for text in ("", "5\n", "null\n", "[" * 10**5, b"\xff")
            ),
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
        8,
    ),
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


@pytest.mark.slow
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

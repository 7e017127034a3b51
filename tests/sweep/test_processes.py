"""Several runs side by side: the same as each alone, whatever happens to them, and nothing left
running."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

import shoal
from shoal.cli.main import main
from shoal.config.arguments import compose_arguments
from shoal.config.campaign import Job
from shoal.errors import ShoalError
from shoal.run import trainer
from shoal.store import checkpoint
from shoal.store import folder as runs
from shoal.sweep import processes, progress, runner, scheduler, vectorised

# wide enough for XLA to spread a product over its threads, whose number then shows in the last bits
WIDE = (
    "ppo mpe/simple_spread --no-preset --games 64 --minibatches 1 --epochs 1 --evaluations 1"
    " --eval-episodes 2"
)
WIDE += " --steps 32000 --save-every 1600"
TINY = (
    "a2c test/identity --games 4 --window 5 --hidden 8 --layers 1 --evaluations 0"
    " --eval-episodes 2 --steps 200"
)
PATIENCE = 300.0  # seconds


def start(words: str, log: Path) -> subprocess.Popen:
    with log.open("a") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "shoal", *words.split()], stdout=said, stderr=said
        )


def wait_until(happened, why: str) -> None:
    end = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < end, why
        time.sleep(0.01)


def alive(folder: Path) -> list[int]:
    """Processes that were told about a folder."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            told = (place / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in told and int(place.name) != os.getpid():
            found.append(int(place.name))
    return found


def newest(run: Path) -> int:
    return max((int(place.name) for place in checkpoint.places(run)), default=-1)


def logged(run: Path) -> list[dict]:
    """What was logged, but for the time it took."""
    lines = [json.loads(line) for line in (run / runs.METRICS).read_text().splitlines()]
    return [
        {k: v for k, v in line.items() if k not in ("seconds", "steps_per_second")}
        for line in lines
    ]


@pytest.mark.slow
def test_seeds_stopped_and_killed_end_as_each_alone_to_the_bit(tmp_path: Path) -> None:
    """SIGTERM, resume, kill -9 of the one that watches, resume: the runs are those that nothing
    happened to."""
    whole, log = tmp_path / "group", tmp_path / "log"
    first = whole / "seed-3"
    one = start(f"train {WIDE} --seed 3 --seeds 2 --out {tmp_path} --name group", log)
    wait_until(lambda: newest(first) > 0 or one.poll() is not None, "no checkpoint")
    one.send_signal(signal.SIGTERM)
    assert one.wait(PATIENCE) == 128 + signal.SIGTERM, log.read_text()
    assert not alive(whole) and (first / runs.SUMMARY).exists()  # stopped cleanly, that is
    one, before = start(f"resume {whole}", log), newest(first)
    wait_until(lambda: newest(first) > before or one.poll() is not None, "no newer checkpoint")
    one.kill()
    assert one.wait(PATIENCE) == -signal.SIGKILL, log.read_text()
    wait_until(lambda: not alive(whole), "orphans")
    one = start(f"resume {whole}", log)
    assert one.wait(PATIENCE) == 0, log.read_text()
    assert (whole / "seed-3.txt").read_text().count("resuming") == 2  # nothing was begun anew

    for seed in (3, 4):
        alone = start(f"train {WIDE} --seed {seed} --devices 1 --out {tmp_path} --name {seed}", log)
        assert alone.wait(PATIENCE) == 0, log.read_text()
        ours, theirs = whole / f"seed-{seed}", tmp_path / str(seed)
        for file in ("policy/weights.safetensors", runs.EPISODES):
            assert (ours / file).read_bytes() == (theirs / file).read_bytes()
        assert logged(ours) == logged(theirs)
        plain = [json.loads((run / runs.CONFIG).read_text()) for run in (ours, theirs)]
        for config in plain:
            config["settings"] |= {"out": "", "name": ""}
        assert plain[0] == plain[1]


@pytest.mark.slow
def test_seeds_are_a_group_with_a_summary_that_is_not_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*TINY.split(), "--out", str(tmp_path), "--name", "group"]
    assert main(["train", *words, "--seeds", "2"]) == 0
    assert (tmp_path / "group" / "curve.png").read_bytes()[:4] == b"\x89PNG"
    told = json.loads((tmp_path / "group" / "group.json").read_text())
    scores = [
        json.loads((tmp_path / "group" / f"seed-{k}" / runs.SUMMARY).read_text())["scores"]
        for k in (0, 1)
    ]
    assert told["seeds"] == [0, 1] and list(told["scores"].values()) == scores
    (team,) = scores[0]
    assert (
        told["mean"][team]
        == pytest.approx((scores[0][team] + scores[1][team]) / 2)
        == told["iqm"][team]
    )
    assert told["deviation"][team] == pytest.approx(abs(scores[0][team] - scores[1][team]) / 2**0.5)
    assert "2 of 2 seeds finished" in capsys.readouterr().out
    assert main(["resume", str(tmp_path / "group")]) == 2
    assert "is finished: there is nothing to resume" in capsys.readouterr().err
    assert main(["train", *words, "--seeds", "2"]) == 2  # never overwritten
    assert main(["train", *words, "--seeds", "0"]) == 2
    assert "seeds must be at least 1" in capsys.readouterr().err


@pytest.mark.slow
def test_a_group_of_hosted_environments_from_python(tmp_path: Path) -> None:
    """One worker each where the runs take all cores, and callbacks are refused, as they could not
    follow."""
    sizes = {
        "games": 2,
        "window": 5,
        "hidden": 8,
        "layers": 1,
        "minibatches": 1,
        "evaluations": 0,
        "eval_episodes": 1,
    }
    options: dict[str, Any] = {
        **sizes,
        "steps": 40,
        "seeds": 2,
        "out": str(tmp_path),
        "name": "group",
        "quiet": True,
    }
    result = shoal.train("ppo", "gym:CartPole-v1", **options)
    assert result.path == tmp_path / "group" and result.scores and not result.stopped
    saved = json.loads((tmp_path / "group" / "seed-1" / runs.CONFIG).read_text())["settings"]
    assert (saved["seed"], saved["seeds"]) == (1, 1)
    assert saved["workers"] == (1 if len(os.sched_getaffinity(0)) < 4 else -1)
    options |= {"name": "other", "callbacks": [shoal.Callback()]}
    with pytest.raises(ShoalError, match="cannot share callback objects"):
        shoal.train("ppo", "gym:CartPole-v1", **options)


@pytest.mark.slow
def test_a_job_that_fails_leaves_the_others_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    jobs = [
        Job(bad, ["a2c", "test/identity", "--colour", "3"]),
        Job(good, TINY.split()),
    ]
    outcomes = scheduler.work(jobs)
    assert outcomes[good].state == progress.FINISHED
    assert outcomes[bad].state == progress.FAILED and outcomes[bad].message.startswith(
        "there is no option --colour"
    )
    assert "bad: failed: there is no option --colour" in capsys.readouterr().out
    stamp = (good / runs.SUMMARY).stat().st_mtime_ns
    # and is not run again
    assert scheduler.work(jobs[1:], quiet=True)[good].state == progress.FINISHED
    assert (good / runs.SUMMARY).stat().st_mtime_ns == stamp


def test_seeds_in_one_program_end_as_each_alone(tmp_path: Path) -> None:
    """What an accelerator does; a run that cannot begin is not waited for."""
    words = (
        "ppo test/mortal --torso gru --games 4 --window 5 --hidden 8 --layers 1 --minibatches 1"
        " --evaluations 1"
    )
    words += f" --eval-episodes 2 --steps 400 --devices 1 --out {tmp_path}"
    base, _ = compose_arguments(words.split())
    configs = [
        replace(base, settings=replace(base.settings, seed=k, name=f"seed-{k}")) for k in range(3)
    ]
    (tmp_path / "seed-1").mkdir()
    (tmp_path / "seed-1" / "thesis.tex").touch()
    outcomes = vectorised.work(configs, quiet=True)
    assert [outcome.state for outcome in outcomes.values()] == [
        progress.FINISHED,
        progress.FAILED,
        progress.FINISHED,
    ]
    for k in (0, 2):
        trainer.train(
            replace(base, settings=replace(base.settings, seed=k, name=f"{k}")), quiet=True
        )
        ours, theirs = (
            load_file(tmp_path / run / "policy/weights.safetensors")
            for run in (f"seed-{k}", f"{k}")
        )
        for name, weights in theirs.items():
            np.testing.assert_allclose(ours[name], weights, atol=1e-5)
        assert [line["env_step"] for line in logged(tmp_path / f"seed-{k}")] == [
            line["env_step"] for line in logged(tmp_path / f"{k}")
        ]


def test_only_what_never_was_trained_is_begun_anew(tmp_path: Path) -> None:
    job = Job(tmp_path / "run", ["a2c", "test/identity"])
    anew = ["train", "a2c", "test/identity", "--out", str(tmp_path), "--name", "run"]
    assert runner.command(job) == anew
    # it was killed that early
    for left in ((), (runs.CONFIG + ".tmp",), (runs.CONFIG, runs.METRICS, runs.LOCK)):
        job.path.mkdir()
        for name in left:
            (job.path / name).touch()
        assert runner.command(job) == anew and not job.path.exists()
    job.path.mkdir()
    (job.path / runs.CONFIG).touch()
    with (
        runs.locked(job.path),
        pytest.raises(ShoalError, match="is being trained by another process"),
    ):
        runner.command(job)
    (job.path / runs.POLICY).mkdir()
    with pytest.raises(ShoalError, match="is in the way"):
        runner.command(job)
    (job.path / checkpoint.FOLDER / "000000000100").mkdir(parents=True)
    assert runner.command(job) == ["resume", str(job.path)]
    other = tmp_path / "mine"
    other.mkdir()
    (other / "thesis.tex").touch()
    with pytest.raises(ShoalError, match="is in the way"):
        runner.command(Job(other, []))
    assert (other / "thesis.tex").exists()


def test_places_share_all_cores() -> None:
    cores = os.sched_getaffinity(0)
    assert processes.core_slots(0, 1000) == [[core] for core in sorted(cores)]
    assert processes.core_slots(0, 1) == [sorted(cores)]
    assert len(processes.core_slots(3 * len(cores), 1000)) == 3 * len(cores)
    assert all(len(share) == 1 for share in processes.core_slots(3 * len(cores), 1000))

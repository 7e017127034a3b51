"""A run that is killed goes on to the bit, and a checkpoint that is not whole is never taken for
one."""

from __future__ import annotations

import json
import random
import resource
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from commands import RUNS, TINY, shoal_process
from helpers import bits

import shoal
from shoal.cli.main import main
from shoal.errors import ShoalError
from shoal.monitor.console import Console
from shoal.run.trainer import Trainer
from shoal.store import checkpoint, folder


def state_of(run: Path) -> tuple[list[bytes], dict]:
    """The last checkpoint, to the bit."""
    loop = Trainer(folder.config_of(run), Console(quiet=True)).loop
    state, about, wrong = checkpoint.newest(run, loop.template(0))
    assert not wrong
    return bits(state), about


def logged(run: Path) -> list[dict]:
    """What was logged, but for the time it took."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [
        {k: v for k, v in line.items() if k not in ("seconds", "steps_per_second")}
        for line in lines
    ]


@pytest.mark.parametrize("name", RUNS)
def test_trap_27_killed_at_any_moment_a_run_ends_as_if_it_had_not_been(
    name: str, tmp_path: Path
) -> None:
    """kill -9 again and again, each time resumed in a new process: state, logs and scores are the
    same to the bit."""
    words = f"{RUNS[name]} {TINY} --out {tmp_path}"
    whole = shoal_process(f"train {words} --name whole", tmp_path)
    assert whole.wait(300) == 0, (tmp_path / "log").read_text()
    cut, rng, kills = shoal_process(f"train {words} --name cut", tmp_path), random.Random(3), 0
    run = tmp_path / "cut"
    while kills < 2:
        newest = next(checkpoint.places(run), None)
        while cut.poll() is None and next(checkpoint.places(run), None) == newest:
            time.sleep(0.002)
        time.sleep(rng.random() * 0.05)
        cut.send_signal(signal.SIGKILL)
        kills += cut.wait(300) == -signal.SIGKILL
        cut = shoal_process(f"resume {run}", tmp_path)
    assert cut.wait(300) == 0, (tmp_path / "log").read_text()
    assert state_of(run)[0] == state_of(tmp_path / "whole")[0]
    assert logged(run) == logged(tmp_path / "whole")
    assert (run / "episodes.csv").read_text() == (tmp_path / "whole" / "episodes.csv").read_text()
    ours, theirs = (
        json.loads((path / "summary.json").read_text()) for path in (run, tmp_path / "whole")
    )
    clocks = {"path", "seconds", "steps_per_second"}
    assert {k: v for k, v in ours.items() if k not in clocks} == {
        k: v for k, v in theirs.items() if k not in clocks
    }
    for file in ("best/weights.safetensors", "policy/weights.safetensors"):
        assert (run / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()
    assert main(["resume", str(run)]) == 2  # it is finished


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained")
    sizes = {
        "games": 4,
        "window": 5,
        "hidden": 8,
        "layers": 1,
        "eval_episodes": 2,
        "evaluations": 0,
    }
    return shoal.train(
        "ppo",
        "test/mortal",
        minibatches=1,
        steps=400,
        save_every=100,
        keep=3,
        out=str(out),
        quiet=True,
        **sizes,
    ).path


@pytest.mark.slow
def test_500_damaged_checkpoints_are_refused_and_the_one_before_is_used(
    trained: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    loop = Trainer(folder.config_of(run), Console(quiet=True)).loop
    like = loop.template(0)
    last, before, *_ = checkpoint.places(run)
    good = {path: path.read_bytes() for path in last.iterdir()}
    rng, (state, about) = np.random.default_rng(0), checkpoint.read(last, like)
    whole = bits(state), about
    for k in range(500):
        path = list(good)[k % 2]
        blob = bytearray(good[path])
        where = int(rng.integers(len(blob)))
        if k % 5 == 0:
            blob = blob[:where]
        elif k % 5 == 1:
            blob = bytearray(rng.bytes(len(blob)))
        else:
            blob[where] ^= 1 << int(rng.integers(8))
        path.write_bytes(blob)
        try:
            state, about = checkpoint.read(last, like)
        except ShoalError:
            pass
        else:  # a bit of white space: what it says is the same
            assert path.name == checkpoint.ABOUT and (bits(state), about) == whole
        path.write_bytes(good[path])
    (last / checkpoint.STATE).write_bytes(good[last / checkpoint.STATE][:-1])
    state, about, wrong = checkpoint.newest(run, like)
    assert about["steps"] == int(before.name) and "checksum does not fit" in wrong[0]
    shutil.rmtree(run / checkpoint.FOLDER)
    with pytest.raises(ShoalError, match="has no checkpoint to resume from"):
        checkpoint.newest(run, like)


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": "many"},
        {"steps": -1},
        {"seconds": None},
        {"logs": {"metrics.jsonl": -5}},
    ],
)
def test_a_checkpoint_that_says_something_strange_is_refused(
    wrong: dict, trained: Path, tmp_path: Path
) -> None:
    """With a checksum that fits."""
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    last = next(checkpoint.places(run))
    about = json.loads((last / checkpoint.ABOUT).read_text()) | wrong
    del about["sha256"]
    about["sha256"] = checkpoint._checksum((last / checkpoint.STATE).read_bytes(), about)
    (last / checkpoint.ABOUT).write_text(json.dumps(about))
    with pytest.raises(ShoalError, match="does not say what shoal writes there"):
        checkpoint.opened(last)


def test_a_disk_that_fills_up_loses_nothing_that_was_saved(trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(trained, run)
    there = [path.name for path in checkpoint.places(run)]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))  # no file may grow beyond 1 kB
        with pytest.raises(ShoalError, match=r"cannot be written .*those before it stay"):
            checkpoint.write(run, {"x": np.zeros(10_000)}, {"steps": 999}, keep=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert [path.name for path in checkpoint.places(run)] == there
    assert not list((run / checkpoint.FOLDER).glob("*.tmp"))


def test_two_processes_do_not_train_one_run(trained: Path) -> None:
    with (
        folder.locked(trained),
        pytest.raises(ShoalError, match="is being trained by another process"),
        folder.locked(trained),
    ):
        pass


def test_a_run_that_cannot_be_written_to_is_refused_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / folder.LOCK).mkdir()  # as a folder that may only be read, whoever asks
    with (
        pytest.raises(ShoalError, match=r"cannot be written to .*: mend that, or copy it"),
        folder.locked(tmp_path),
    ):
        pass

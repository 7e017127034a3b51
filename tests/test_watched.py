"""Environments are watched: whatever one does in its process, the command says so in a sentence, and nothing stays."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.cli import main
from shoal.envs import make
from shoal.envs.watched import Watched, called, probe
from shoal.types import ShoalError

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environments with vices can be found by their ids."""
    monkeypatch.syspath_prepend(str(HERE))


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def sleepers(mark: str) -> list[str]:
    """Processes that sleep and were started from an environment with that mark among its variables."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if b"sleep" in (place / "cmdline").read_bytes() and mark.encode() in (place / "environ").read_bytes():
                found.append(place.name)
        except OSError:
            pass
    return found


@pytest.mark.parametrize(
    ("what", "where", "sentence"),
    [
        ("raises", "init", "vices:make cannot be opened: RuntimeError: the environment fell over"),
        ("exits", "init", "vices:make cannot be opened: SystemExit"),
        ("ends", "init", r"vices:make cannot be opened: it ends the process \(exit code 7\)"),
        ("crashes", "init", r"vices:make cannot be opened: it ends the process \(SIGSEGV\)"),
        ("hangs", "init", "vices:make cannot be opened: it does not return from _hangs|make|__init__ within 1 s"),
    ],
)
def test_a_constructor_that_fails_is_one_sentence(
    what: str, where: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.envs.watched.STARTING", 1.0)
    with pytest.raises(ShoalError, match=sentence):
        probe("vices:make", {"what": what, "where": where}, 1.0)


@pytest.mark.parametrize("what", ["raises", "exits", "ends", "hangs", "thread", "child", "orphan"])
def test_what_it_does_when_it_is_closed_is_not_our_affair(
    what: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shoal.envs.watched.PARTING", 1.0)
    monkeypatch.setenv("MARK", f"shoal-{os.getpid()}-{what}")
    assert probe("vices:make", {"what": what, "where": "close"}, 1.0)["agent"].obs == 2
    assert not sleepers(f"shoal-{os.getpid()}-{what}") and "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("what", "where", "rule", "finding"),
    [
        ("ends", "init", "It leaves the process alone.", "it ends the process (exit code 7)"),
        ("exits", "step", "It leaves the process alone.", "it ends the process (exit code 3)"),
        ("ends", "reset", "It leaves the process alone.", "it ends the process (exit code 7)"),
        ("crashes", "step", "It leaves the process alone.", "it ends the process (SIGSEGV)"),
        ("hangs", "init", "Every call returns in time.", "it does not return from make within 1 s"),
        ("hangs", "reset", "Every call returns in time.", "it does not return from reset within 1 s"),
        ("hangs", "step", "Every call returns in time.", "it does not return from step within 1 s"),
        ("hangs", "close", "Every call returns in time.", "it does not return from close within 1 s"),
        ("raises", "close", "It plays without an error.", "the environment fell over"),
        ("thread", "reset", "It leaves no threads behind.", "it leaves a thread that does not end: endless"),
        ("child", "step", "It leaves no child processes behind.", "it leaves child processes: sleep ("),
        ("orphan", "step", "It leaves no child processes behind.", "it leaves child processes: sleep ("),
    ],
)
def test_check_env_names_what_is_done_to_its_process(
    what: str,
    where: str,
    rule: str,
    finding: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("shoal.envs.watched.STARTING", 1.0)
    monkeypatch.setattr("shoal.trial.PARTING", 3.0 if what == "thread" else 20.0)
    monkeypatch.setenv("MARK", mark := f"shoal-{os.getpid()}-{what}-{where}")
    words = ["check-env", "vices:make", "--env.what", what, "--env.where", where, "--steps", "12", "--patience", "1"]
    assert main(words) == 1
    out = capsys.readouterr().out
    assert f"broken  {rule}\n" in out and finding in out and "1 rules broken" in out
    assert not sleepers(mark)


def test_check_env_finds_nothing_in_what_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-env", "vices:make", "--steps", "12"]) == 0
    out = capsys.readouterr().out
    assert "kept    It leaves no child processes behind." in out and "no rules broken" in out


def test_check_env_finds_agents_whose_order_is_another_in_every_process(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["check-env", "vices:shuffled", "--env.kept", str(tmp_path / "kept"), "--steps", "12"]
    assert main(words) == 1
    out = capsys.readouterr().out
    assert "broken  It is the same in every process." in out and re.search(
        r"agents a_(.), a_., where it had a_(?!\1)", out
    )

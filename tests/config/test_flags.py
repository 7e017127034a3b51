"""Small things of the command line: help everywhere, other libraries' words, colours, narrow
screens, completion."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import shoal
from shoal.cli.main import main
from shoal.config.flags import THEIRS
from shoal.errors import ShoalError
from shoal.monitor import console
from shoal.store.metrics_file import RATE, return_name

PAIR = ["train", "ppo", "test/identity"]


@pytest.mark.parametrize("words", [["list", "--help"], ["info", "-h"], ["resume", "-h"]])
def test_every_command_helps(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 0
    assert capsys.readouterr().out.startswith(f"shoal {words[0]}")


@pytest.mark.parametrize(
    ("algorithm", "theirs", "ours"),
    [
        ("ppo", "--learning-rate", "--lr"),
        ("ppo", "--num_envs", "--games"),
        ("dqn", "--batch-size", "--batch"),
        ("ppo", "--total-timesteps", "--steps"),
        ("ppo", "--ent-coef", "--entropy"),
        ("ppo", "--gae-lambda", "--lam"),
        ("ppo", "--n-steps", "--window"),
        ("dqn", "--buffer-size", "--capacity"),
        ("dqn", "--learning_starts", "--warmup"),
    ],
)
def test_other_libraries_words_are_translated(
    algorithm: str, theirs: str, ours: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", algorithm, "test/identity", theirs, "1"]) == 2
    told = capsys.readouterr().err
    assert told.endswith(f": what other libraries call so is {ours} here\n"), told


def test_every_translation_leads_to_an_option() -> None:
    from shoal.algorithms import ALGORITHMS
    from shoal.config.flags import flags
    from shoal.config.settings import Settings

    known = {
        flag
        for kind in (Settings, *(one.Config for one in ALGORITHMS.values()))
        for flag, _ in flags(kind, kind())
    }
    assert all(
        f"--{ours}" in known and f"--{theirs}" not in known for theirs, ours in THEIRS.items()
    )


def test_help_has_no_colours_where_they_are_not_wanted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    for value, coloured in (("", True), ("1", False)):
        monkeypatch.setenv("NO_COLOR", value)
        with pytest.raises(SystemExit):
            main([*PAIR, "--help"])
        assert ("\x1b[" in capsys.readouterr().out) == coloured


def test_lines_of_help_break_at_the_edge_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not where the docstring of a field breaks."""
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([*PAIR, "--help"])
    assert "a step moves all agents of one game once." in capsys.readouterr().out


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_the_return_is_shown_on_narrow_screens(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(console, "on_terminal", lambda: True)
    shown = console.Console()
    config: Any = SimpleNamespace(settings=SimpleNamespace(steps=10_000_000), sides=["agent"])
    run: Any = SimpleNamespace(config=config, steps=1_234_567)
    with shown.training(10_000_000):
        shown.on_iteration(run, {RATE: 12_345.0, return_name("agent"): -12.34})
        time.sleep(0.3)
        line = str(shown.bar.tasks[0].fields["line"])
    assert "agent -12.34" in line and len(line) <= columns


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_words_can_be_completed(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--completion", shell]) == 0
    script = tmp_path / "script"
    script.write_text(capsys.readouterr().out)
    if shutil.which(shell):
        assert subprocess.run([shell, "-n", str(script)], check=False).returncode == 0
    assert all(
        word in script.read_text()
        for word in ("mappo", "check-env", "mpe/simple_tag", "save-every")
    )
    assert main(["--completion", "csh"]) == 2


def test_bash_completes_algorithms_and_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["--completion", "bash"])
    ask = "COMP_CWORD=2; COMP_WORDS=(shoal train {}); _shoal; echo ${{COMPREPLY[@]}}\n"
    script = capsys.readouterr().out + ask.format("mapp") + ask.format("--gam")
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.stdout.split() == ["mappo", "--games", "--gamma"]


@pytest.mark.slow
def test_a_tracker_without_a_login_is_refused_before_anything_is_compiled(tmp_path: Path) -> None:
    """In a process of its own, as wandb remembers who one is."""
    pytest.importorskip("wandb")
    about = {name: value for name, value in os.environ.items() if not name.startswith("WANDB_")}
    about |= {
        "HOME": str(tmp_path),
        "NETRC": str(tmp_path / "none"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    command = [
        sys.executable,
        "-m",
        "shoal",
        *PAIR,
        "--track",
        "wandb",
        "--out",
        str(tmp_path / "runs"),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, env=about, cwd=tmp_path, check=False
    )
    assert done.returncode == 2 and "compiling" not in done.stdout
    assert (
        done.stderr.startswith("shoal: track=wandb needs a login") and done.stderr.count("\n") == 1
    ), done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("env", "option"),
    [
        ("mpe/simple_tag", "num_adversaries"),
        ("mpe/simple_tag", "num_obstacles"),
        ("mpe/simple_spread", "N"),
        ("mpe/simple_adversary", "N"),
        ("mpe/simple_world_comm", "num_food"),
        ("test/identity", "n"),
    ],
)
def test_crowds_are_refused_by_their_size(env: str, option: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"env": {option: 1_000_000}, "out": str(tmp_path)}
    start = time.monotonic()
    with pytest.raises(ShoalError, match="must be at most 1,000"):
        shoal.train("ppo", env, quiet=True, **options)
    assert time.monotonic() - start < 10

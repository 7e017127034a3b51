"""Where Shoal runs: without Linux's word for cores, without a home, with a stdout that cannot write
or is not there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TRAIN = (
    "train ppo test/identity --steps 40 --games 2 --window 10 --minibatches 1 --eval-episodes 1"
    " --evaluations 0 --hidden 4 --layers 1"
)
SEEDS = ("--seeds", "2", "--out")
# several commands in one process, each a word
TOGETHER = (
    "import sys; from shoal.cli import main; main._ready();"
    " sys.exit(max(main.main(line.split()) for line in sys.argv[1:]))"
)
MAC = "import os; del os.sched_getaffinity, os.sched_setaffinity"
HOMELESS = """
import os, pwd
os.environ.pop("HOME", None)
def nobody(uid):
    raise KeyError(f"getpwuid(): uid not found: {uid}")
pwd.getpwuid = nobody
"""


def shoal(
    words: list[str],
    tmp_path: Path,
    first: str = "",
    home: bool = True,
    by: tuple[str, str] = ("-m", "shoal"),
    **variables: str,
) -> tuple[int, str]:
    """A command in a process in which `first` has happened, as in those that it starts; its code
    and what it said."""
    (tmp_path / "sitecustomize.py").write_text(first)
    paths = os.pathsep.join([str(tmp_path), *sys.path])
    about = {
        name: value
        for name, value in os.environ.items()
        if home or name not in ("HOME", "XDG_CACHE_HOME", "JAX_COMPILATION_CACHE_DIR")
    }
    done = subprocess.run(
        [sys.executable, *by, *words],
        capture_output=True,
        env=about | {"PYTHONPATH": paths} | variables,
        cwd=tmp_path,
        check=False,
    )
    return done.returncode, (done.stdout + done.stderr).decode("utf-8", "replace")


@pytest.mark.slow
def test_the_cores_need_not_be_told(tmp_path: Path) -> None:
    code, said = shoal([*TRAIN.split(), *SEEDS, str(tmp_path / "runs")], tmp_path, MAC)
    assert code == 0 and "2 of 2 seeds finished" in said, said


@pytest.mark.slow
def test_a_user_needs_no_home_nor_a_machine_that_tells_its_cores(tmp_path: Path) -> None:
    code, said = shoal(
        [*TRAIN.split(), "--out", str(tmp_path / "runs")], tmp_path, HOMELESS + MAC, home=False
    )
    assert code == 0 and "policy: " in said and "Traceback" not in said, said


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_what_stdout_cannot_write_is_left_out(encoding: str, tmp_path: Path) -> None:
    words = [*TRAIN.split(), "--out", "runs", "--name", "run"]
    more = ["evaluate runs/run --episodes 1", "info vdac", "list", f"{TRAIN} --help"]
    for command, by in ((words, ("-m", "shoal")), (more, ("-c", TOGETHER))):
        code, said = shoal(command, tmp_path, by=by, PYTHONIOENCODING=encoding)
        assert code == 0 and "Error" not in said, said


@pytest.mark.slow
def test_files_are_utf_8_whatever_the_machine_writes(tmp_path: Path) -> None:
    program = (
        "from shoal.cli.main import main; words = sys.argv[1:];"
        " assert main([*words, '--name', 'run', '--torso', 'gru']) == 0;"
        " assert main(['report', 'runs']) == 0;"
        " assert main(['export', 'runs/run', '--to', 'numpy', '--out', 'made']) == 0"
    )
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {program}", *TRAIN.split(), "--out", "runs"],
        capture_output=True,
        env=os.environ
        | ascii_only
        | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONIOENCODING": "utf-8"},
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "±" in (tmp_path / "runs" / "report.html").read_text("utf-8")
    assert "…" in (tmp_path / "made" / "README.md").read_text("utf-8")


@pytest.mark.slow
def test_a_run_from_python_says_what_stdout_can_write(tmp_path: Path) -> None:
    program = (
        "train('ppo', 'test/identity', steps=40, games=2, window=10, minibatches=1,"
        " eval_episodes=1, evaluations=0, hidden=4, layers=1, out='runs')"
    )
    for prepare in ("", "import sys; sys.stdout = None; ", "import sys; sys.stdout.close(); "):
        prepare = f"import shoal; train = shoal.train; {prepare}"
        done = subprocess.run(
            [sys.executable, "-c", prepare + program],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONPATH": os.pathsep.join(sys.path)},
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_stdout_may_be_closed(tmp_path: Path) -> None:
    words = " ".join([*TRAIN.split(), "--out", str(tmp_path / "runs"), "--name", "run"])
    command = f"{sys.executable} -m shoal {words} >&- 2>&-"
    about = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run(command, shell=True, env=about, cwd=tmp_path, check=False).returncode == 0
    first = (tmp_path / "runs" / "run" / "metrics.jsonl").read_text().splitlines()[0]
    assert first.startswith("{"), "a log took the place of stdout"

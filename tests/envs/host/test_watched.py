"""Environments are watched: whatever one does in its process, the command says so in a sentence,
and nothing stays."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import TEAM, TINY, clock, quick
from places import SUPPORT

import shoal
from shoal.algorithms import random_policy
from shoal.cli.main import main
from shoal.config.settings import Settings
from shoal.engine.evaluate import evaluator
from shoal.envs import make
from shoal.envs.host.arena import Arena
from shoal.envs.host.shared import reserve
from shoal.envs.host.watched import appended_file, creation_patience, probe
from shoal.errors import ShoalError

HERE = SUPPORT


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
    """Processes that sleep and were started from an environment with that mark among its
    variables."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            if (
                b"sleep" in (place / "cmdline").read_bytes()
                and mark.encode() in (place / "environ").read_bytes()
            ):
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
        (
            "hangs",
            "init",
            "vices:make cannot be opened: it does not return from _hangs|make|__init__ within 1 s",
        ),
    ],
)
def test_a_constructor_that_fails_is_one_sentence(
    what: str, where: str, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.envs.host.watched.STARTING", 1.0)
    with pytest.raises(ShoalError, match=sentence):
        probe("vices:make", {"what": what, "where": where}, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["raises", "exits", "ends", "hangs", "thread", "child", "orphan"])
def test_what_it_does_when_it_is_closed_is_not_our_affair(
    what: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shoal.envs.host.watched.PARTING", 1.0)
    monkeypatch.setenv("MARK", f"shoal-{os.getpid()}-{what}")
    assert probe("vices:make", {"what": what, "where": "close"}, 1.0).teams["agent"].obs == 2
    assert not sleepers(f"shoal-{os.getpid()}-{what}") and "Traceback" not in capfd.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "where", "rule", "finding"),
    [
        ("ends", "init", "It leaves the process alone.", "it ends the process (exit code 7)"),
        ("exits", "init", "It leaves the process alone.", "it ends the process (exit code 3)"),
        (
            "exits",
            "step",
            "It leaves the process alone.",
            "step 2: it ends the process (exit code 3)",
        ),
        ("ends", "reset", "It leaves the process alone.", "it ends the process (exit code 7)"),
        ("crashes", "step", "It leaves the process alone.", "it ends the process (SIGSEGV)"),
        ("hangs", "init", "Every call returns in time.", "it does not return from make within 1 s"),
        (
            "hangs",
            "reset",
            "Every call returns in time.",
            "it does not return from reset within 1 s",
        ),
        ("hangs", "step", "Every call returns in time.", "it does not return from step within 1 s"),
        (
            "hangs",
            "close",
            "Every call returns in time.",
            "it does not return from close within 1 s",
        ),
        ("raises", "close", "It plays without an error.", "the environment fell over"),
        (
            "thread",
            "reset",
            "It leaves no threads behind.",
            "it leaves a thread that does not end: endless",
        ),
        (
            "child",
            "step",
            "It leaves no child processes behind.",
            "it leaves child processes: sleep (",
        ),
        (
            "orphan",
            "step",
            "It leaves no child processes behind.",
            "it leaves child processes: sleep (",
        ),
        (
            "helper",
            "step",
            "It leaves no child processes behind.",
            "it leaves child processes: helper (",
        ),
        (
            "lasts",
            "step",
            "It leaves the process alone.",
            "it does not let its process end",
        ),
        (
            "scribbles",
            "step",
            "It leaves the process alone.",
            "it wrote into the pipe that answers come through",
        ),
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
    monkeypatch.setattr("shoal.envs.host.watched.STARTING", 1.0)
    monkeypatch.setattr(
        "shoal.envs.watched_check.PARTING", 20.0 if what in ("child", "orphan") else 3.0
    )
    monkeypatch.setenv("MARK", mark := f"shoal-{os.getpid()}-{what}-{where}")
    words = ["check-env", "vices:make", "--env.what", what, "--env.where", where, "--steps", "12"]
    words += ["--patience", "1" if what == "hangs" else "60"]
    assert main(words) == 1
    out = capsys.readouterr().out
    assert f"broken  {rule}\n" in out and finding in out and "1 rules broken" in out
    assert not sleepers(mark)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "code", "sentence"),
    [
        ("vices:seedless", 1, "reset of Gymnasium's Env takes a seed: write def reset("),
        ("vices:unannounced", 1, "an environment of PettingZoo has possible_agents"),
        ("vices:nobody", 2, "vices has no function 'nobody'"),
        ("gym:NoSuch-v1", 2, "gymnasium cannot make 'NoSuch-v1'"),
    ],
)
def test_check_env_says_what_cannot_be_opened_in_a_sentence(
    env: str, code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check-env", env, "--steps", "12"]) == code
    said = "".join(capsys.readouterr())
    assert sentence in said and "Traceback" not in said and "ShoalError" not in said


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


SMALL = {
    "steps": 40,
    "games": 2,
    "window": 10,
    "minibatches": 1,
    "evaluations": 0,
    "eval_episodes": 2,
}


VICES = ("what", "where", "lock", "note", "size", "endless", "limit", "kept")


def train(tmp_path: Path, env: str = "vices:make", **how: Any) -> shoal.api.Result:
    vice = {name: how.pop(name) for name in list(how) if name in VICES}
    options: dict[str, Any] = (
        SMALL | TINY | {"out": str(tmp_path), "name": "run", "quiet": True} | how
    )
    return shoal.train("ppo", env, env=vice, preset=False, **options)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["raises", "exits", "ends", "hangs", "thread", "child", "orphan"])
def test_a_run_ends_well_whatever_closing_its_environment_does(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.envs.host.watched.PARTING", 1.0)
    monkeypatch.setenv("MARK", mark := f"shoal-{os.getpid()}-run-{what}")
    assert train(tmp_path, what=what, where="close").steps >= 40
    assert not sleepers(mark)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["child", "orphan"])
def test_what_an_environment_starts_ends_with_the_run(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what goes into a session of its own."""
    monkeypatch.setenv("MARK", mark := f"shoal-{os.getpid()}-started-{what}")
    assert train(tmp_path, what=what, where="reset").steps >= 40
    assert not sleepers(mark)


def command(tmp_path: Path, words: str, mark: str = "") -> subprocess.Popen:
    paths = os.pathsep.join([str(HERE), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-m", "shoal", *words.split()],
        stdout=subprocess.DEVNULL,
        stderr=(tmp_path / "errors").open("w"),
        env=os.environ | {"PYTHONPATH": paths, "MARK": mark},
        cwd=tmp_path,
    )


def until(true: Any, seconds: float = 100.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", ["train ppo vices:make --workers 1 --out out", "check-env vices:make"]
)
@pytest.mark.parametrize("where", quick(["reset", "init", "close"], 1))
def test_ctrl_c_ends_a_command_whose_environment_hangs(
    words: str, where: str, tmp_path: Path
) -> None:
    """At once: not after its patience."""
    if words.startswith("train") and where == "close":
        # there it hangs when who plays is known
        words += " --steps 40 --games 2 --window 10 --eval-episodes 1"
    note = tmp_path / "note"
    run = command(tmp_path, f"{words} --env.what hangs --env.where {where} --env.note {note}")
    try:
        until(note.exists)
        run.send_signal(signal.SIGINT)
        assert run.wait(15) == 130
    finally:
        run.kill()
    assert "Traceback" not in (tmp_path / "errors").read_text()


@pytest.mark.slow
def test_children_of_an_environment_end_when_the_command_is_killed(tmp_path: Path) -> None:
    note, mark = tmp_path / "note", f"shoal-{os.getpid()}-killed"
    run = command(
        tmp_path,
        f"train ppo vices:make --env.what orphan --env.where reset --env.note {note} --out out",
        mark,
    )
    try:
        until(lambda: bool(sleepers(mark)))
    finally:
        run.kill()
        run.wait()
    until(lambda: not sleepers(mark), 20)


@pytest.mark.slow
def test_trap_28_an_environment_that_hangs_is_replaced_also_in_a_short_run(tmp_path: Path) -> None:
    """Without asking for workers: the default watches."""
    with pytest.raises(ShoalError, match=r"broke 1 times|lost 5 times") as caught:
        train(tmp_path, what="hangs", where="step", patience=1.0, tolerance=0)
    assert "did not answer for 1 seconds, in step" in caught.value.detail


def test_reading_a_process_s_stderr_does_not_move_where_it_writes() -> None:
    with appended_file() as file:
        os.write(file.fileno(), b"first ")
        file.seek(0)
        os.write(file.fileno(), b"second")
        file.seek(0)
        assert file.read() == b"first second"


@pytest.mark.parametrize("workers", [0, 1])
def test_an_environment_that_exits_is_a_fault(workers: int, tmp_path: Path) -> None:
    with pytest.raises(ShoalError, match="broke 2 times") as caught:
        train(tmp_path, what="exits", where="step", workers=workers, tolerance=0)
    assert "SystemExit: 3" in caught.value.detail


@pytest.mark.parametrize("workers", [1, 2])
def test_agents_in_another_order_are_refused_by_name(workers: int, tmp_path: Path) -> None:
    sentence = (
        r"vices:shuffled is not the same each time it is made: team 'a' has the agents a_.,"
        r" a_., where it had"
    )
    with pytest.raises(ShoalError, match=sentence):
        train(tmp_path, "vices:shuffled", kept=str(tmp_path / "kept"), workers=workers)


@pytest.mark.slow
def test_an_environment_that_may_exist_only_once_can_be_trained_on(tmp_path: Path) -> None:
    """With `alone`: training's is closed for every evaluation and begins a new episode after it,
    without a fault."""
    lock = str(tmp_path / "lock")
    sizes = {"games": 1, "workers": 1, "evaluations": 2, "window": 12, "steps": 96}
    with pytest.raises(ShoalError, match="Resource temporarily unavailable"):
        train(tmp_path, lock=lock, **sizes)
    result = train(tmp_path, lock=lock, alone=True, **sizes)
    assert result.steps >= 96 and result.scores["agent"] == 5.0
    assert not (tmp_path / "run" / "faults.jsonl").exists()
    assert shoal.load(result.path, trust=True).evaluate(3).length.tolist() == [5, 5, 5]
    rows = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    earned = [row["agent/return"] for row in rows if row.get("agent/return") is not None]
    assert earned and set(earned) == {5.0}, "an episode that was cut short was counted"


def test_nothing_to_see_is_said_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(
        ShoalError,
        match=r"vices:make shows team 'agent' nothing at all"
        r" \(observations of size 0\)",
    ):
        train(tmp_path, size=0)


def test_an_empty_state_is_refused_where_it_is_learnt_from(tmp_path: Path) -> None:
    vice = {"kept": str(tmp_path / "kept"), "teams": "all"}
    with pytest.raises(
        ShoalError,
        match=r"mappo learns from the state, and that of"
        r" vices:Stateless is empty",
    ):
        shoal.train(
            "mappo",
            "vices:Stateless",
            env=vice,
            out=str(tmp_path),
            preset=False,
            quiet=True,
            **SMALL,
        )


@pytest.mark.slow
def test_an_episode_that_never_ends_is_told_and_given_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(
        ShoalError,
        match=r"game \d of vices:make has not ended its episode"
        r" after 50 steps; cut its",
    ):
        train(tmp_path, endless=True, longest=50)
    assert train(tmp_path, endless=True, longest=50, limit=20).steps >= 40


def test_what_does_not_end_is_told_of_before_it_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("shoal.engine.host_evaluate.MANY", 20)
    env, told = make("vices:make", endless=True), []
    play = evaluator(
        env,
        {TEAM: random_policy(env.teams[TEAM])},
        2,
        False,
        1,
        Settings(longest=60),
        None,
        told.append,
    )
    with (
        contextlib.closing(play),
        pytest.raises(ShoalError, match="has not ended its episode after 60 steps"),
    ):
        play({TEAM: ()}, 0, clock())
    (sentence,) = told
    assert (
        "game 0 of vices:make has not ended its episode after 20 steps" in sentence
        and "--env.limit" in sentence
    )


def test_a_compiled_game_that_never_ends_is_given_up_too() -> None:
    env = make("test/mortal", n=2, length=60)
    players = {team: random_policy(spec) for team, spec in env.teams.items()}
    nothing = {team: () for team in players}
    with pytest.raises(ShoalError, match="has not ended its episode after 59 steps"):
        evaluator(env, players, 2, False, 0, Settings(longest=59))(nothing, 0, clock())
    assert evaluator(env, players, 2, False, 0, Settings(longest=60))(
        nothing, 0, clock()
    ).length.tolist() == [60, 60]


@pytest.mark.slow
def test_making_an_environment_may_take_longer_than_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """120 seconds and more where patience is longer; here 1 and 30."""
    assert creation_patience(60.0) == 120.0 and creation_patience(200.0) == 200.0
    slow = {"what": "sleeps", "where": "init"}
    with Arena(make("vices:make", **slow), 1, 0, workers=1, patience=1.0) as arena:
        assert not arena.step()
    monkeypatch.setattr("shoal.envs.host.watched.STARTING", 1.0)
    env = make("vices:make", **slow)
    with pytest.raises(ShoalError, match="does not return from make within 1 s"):
        assert dataclasses.replace(env, patience=1.0).teams
    assert train(tmp_path, **slow, patience=30.0).steps >= 40


@pytest.mark.parametrize("teams", ["ppo vices:make", "--team agent=ppo vices:make"])
def test_patience_reaches_the_process_that_tells_who_plays(
    teams: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shoal.envs.host.watched.STARTING", 0.5)
    slow = "--env.what sleeps --env.where init --patience 1"
    assert main(["train", *teams.split(), *slow.split()]) == 2
    assert "does not return from make within 1 s" in capsys.readouterr().err


@pytest.mark.slow
def test_ctrl_c_in_training_does_not_wait_for_a_worker_that_hangs(tmp_path: Path) -> None:
    """It is saved what there is; the patience of an hour is not used up."""
    note = tmp_path / "note"
    sizes = (
        "--steps 1e6 --games 2 --window 10 --eval-episodes 1 --hidden 8 --patience 3600 --name run"
    )
    vice = f"--env.what lingers --env.where step --env.note {note}"
    run = command(
        tmp_path, f"train ppo vices:make --no-preset --workers 1 {sizes} {vice} --out {tmp_path}"
    )
    try:
        until((tmp_path / "run" / "checkpoints").is_dir)
        note.touch()
        time.sleep(1.0)
        run.send_signal(signal.SIGINT)
        until((tmp_path / "run" / "policy").is_dir, 30)
        run.send_signal(signal.SIGINT)
        assert run.wait(15) in (130, 1)
    finally:
        run.kill()
    assert "Traceback" not in (tmp_path / "errors").read_text()


def test_memory_that_is_too_small_is_had_elsewhere_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's /dev/shm may be tiny: nobody is ended by SIGBUS when it is written to."""
    asked: list[str] = []
    full = ["/dev/shm"]

    def reserve(file: int, start: int, size: int) -> None:
        asked.append(os.readlink(f"/proc/self/fd/{file}"))
        if asked[-1].startswith(tuple(full)):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", reserve)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with Arena(make("vices:make"), 2, 0, workers=1) as arena:
        assert not arena.step()
    assert asked[0].startswith("/dev/shm") and asked[1].startswith(str(tmp_path))
    full.append(str(tmp_path))
    with pytest.raises(ShoalError, match=r"the games need .* MB .*/dev/shm and .*have no room"):
        Arena(make("vices:make"), 2, 0, workers=1)


def test_memory_that_cannot_be_written_to_is_had_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.envs.host.shared.FAST", "/proc")  # a folder that takes no file
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with reserve(64) as memory:
        assert os.readlink(f"/proc/self/fd/{memory.fileno()}").startswith(str(tmp_path))


def test_memory_is_reserved_before_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit on the size of files stands for a folder that is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    env = make("vices:make")
    assert env.teams
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, before[1]))
    try:
        with pytest.raises(ShoalError, match="have no room"):
            Arena(env, 10_000, 0, workers=0)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_an_environment_without_close_is_trained_on(workers: int, tmp_path: Path) -> None:
    assert train(tmp_path, "vices:Closeless", workers=workers).steps >= 40


@pytest.mark.slow
def test_a_child_that_comes_back_instead_of_its_parent_is_ended(tmp_path: Path) -> None:
    assert train(tmp_path, what="strays", where="reset").scores["agent"] == 5.0
    assert not (tmp_path / "run" / "faults.jsonl").exists()


@pytest.mark.slow
def test_a_thread_that_does_not_end_does_not_keep_the_command(tmp_path: Path) -> None:
    """Not even where the environment is played in its own process."""
    sizes = (
        "--steps 40 --games 2 --window 10 --eval-episodes 1 --hidden 8 --minibatches 1 --no-preset"
    )
    vice = "--env.what thread --env.where reset --workers 0"
    run = command(tmp_path, f"train ppo vices:make {sizes} {vice} --out {tmp_path}")
    try:
        assert run.wait(60) == 0
    finally:
        run.kill()


def test_a_command_that_only_asks_outlives_what_it_asks_about(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for words in (
        "info vices:dying",
        "watch random vices:dying",
        "train ppo vices:dying --self-play",
    ):
        assert main(words.split()) == 2
        assert (
            "vices:dying cannot be opened: it ends the process (exit code 7)"
            in capsys.readouterr().err
        )

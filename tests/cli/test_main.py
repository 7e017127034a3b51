"""The command line, called as a user calls it: what works, and what every mistake is told."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.cli import main

SIZES = {
    "steps": 160,
    "games": 4,
    "window": 5,
    "eval-episodes": 3,
    "evaluations": 1,
    "hidden": 4,
    "minibatches": 1,
}
TINY = [word for name, value in SIZES.items() for word in (f"--{name}", str(value))]
PAIR = ["ppo", "test/identity"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


MISTAKES = {
    "unknown verb": (["trian"], "did you mean 'train'"),
    "nothing to train": (["train"], "shoal train <algorithm> <env>"),
    "no environment": (["train", "ppo"], "shoal train <algorithm> <env>"),
    "unknown algorithm": (["train", "mapo", "test/identity"], "mappo"),
    "unknown environment": (["train", "ppo", "test/identiti"], "test/identity"),
    "unknown option": (["train", *PAIR, "--hiden", "4"], "did you mean --hidden"),
    "unknown environment option": (
        ["train", *PAIR, "--env.lenght", "4"],
        "did you mean --env.length",
    ),
    "a word too many": (["train", *PAIR, "again"], "one word too many"),
    "value missing": (["train", *PAIR, "--lr"], "--lr needs a value"),
    "value missing before a flag": (["train", *PAIR, "--lr", "--seed", "1"], "--lr needs a value"),
    "not a number": (["train", *PAIR, "--lr", "fast"], "--lr"),
    "not a whole number": (["train", *PAIR, "--hidden", "4.5"], "'4.5' is not a whole number"),
    "not a choice": (["train", *PAIR, "--torso", "lstm"], "torso is mlp, gru, commnet"),
    "switch with a value": (["train", *PAIR, "--anneal=yes"], "--anneal takes no value"),
    "no steps": (["train", *PAIR, "--steps", "0"], "steps must be at least 1"),
    "negative games": (["train", *PAIR, "--games", "-8"], "games must be at least 1"),
    "negative rate": (["train", *PAIR, "--lr", "-1"], "lr must be greater than 0"),
    "impossible game": (["train", *PAIR, "--env.n", "0"], "n must be"),
    "too few steps": (["train", *PAIR, "--steps", "10"], "10 steps are too few"),
    "uneven minibatches": (
        ["train", *PAIR, "--games", "2", "--window", "5", "--minibatches", "3"],
        "minibatches",
    ),
    "uneven minibatches of games": (
        ["train", *PAIR, "--games", "4", "--torso", "gru", "--minibatches", "3"],
        "minibatches",
    ),
    "uneven devices": (
        ["train", *PAIR, "--games", "3", "--devices", "2"],
        "3 games cannot be shared evenly",
    ),
    "too many devices": (["train", *PAIR, "--devices", "64"], "JAX has 2"),
    "continuous only for others": (
        ["train", "qmix", "test/continuous_identity"],
        "choose another algorithm",
    ),
    "warmup beyond the run": (
        ["train", "dqn", "test/identity", "--steps", "5000", "--warmup", "10000"],
        "lower warmup",
    ),
    "small replay": (
        ["train", "dqn", "test/identity", "--capacity", "100", "--window", "5"],
        "raise capacity",
    ),
    "uneven batch": (
        ["train", "dqn", "test/identity", "--batch", "33", "--devices", "2"],
        "change batch",
    ),
    "too many steps to sum": (
        ["train", "dqn", "test/identity", "--n-step", "9"],
        "do not fit a window of 8",
    ),
    "two kinds of target": (
        ["train", "dqn", "test/identity", "--n-step", "2", "--lam", "0.5"],
        "not both",
    ),
    "burn-in too long": (
        ["train", "dqn", "test/identity", "--burn-in", "8"],
        "do not fit a window of 8",
    ),
    "impossible chance": (
        ["train", "dqn", "test/identity", "--epsilon", "1.5"],
        "epsilon must lie between",
    ),
    "no rivals for one's own critic": (
        ["train", "ddpg", "mpe/simple_tag", "--rivals"],
        "set rivals to False",
    ),
    "discrete only": (["train", "coma", "test/continuous_identity"], "choose another algorithm"),
    "unknown partition": (["train", *PAIR, "--sharing", "mine"], "partition"),
    "team without algorithm": (
        ["train", "--team", "adversary=coma", "mpe/simple_tag"],
        "--team agent=",
    ),
    "unknown team": (
        ["train", "ppo", "--team", "agnet=coma", "mpe/simple_tag"],
        "did you mean 'agent'",
    ),
    "a frozen run alone": (["train", "frozen:nowhere", "test/identity"], "--team <team>=frozen:"),
    "half a team": (["train", "--team", "adversary", "mpe/simple_tag"], "--team adversary=ppo"),
    "option without team": (
        ["train", "ppo", "--team", "agent=a2c", "mpe/simple_tag", "--lr", "1"],
        "--agent.lr",
    ),
    "folder name": (["train", *PAIR, "--name", "a/b"], "plain folder name"),
    "nothing to evaluate": (["evaluate"], "shoal evaluate <run>"),
    "not a run": (["evaluate", "."], "is not a run folder"),
    "no such run": (["evaluate", "nowhere"], "there is no folder nowhere"),
    "words the wrong way round": (
        ["train", "mpe/simple_spread", "mappo"],
        "comes first: shoal train mappo mpe/",
    ),
    "resume of nothing": (["resume", "nowhere"], "there is no folder nowhere"),
    "list of something": (["list", "everything"], "takes no arguments"),
    "info of nothing": (["info"], "shoal info <name>"),
    "info of something unknown": (["info", "comma"], "did you mean 'coma'"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence_and_leaves_nothing(
    mistake: str, elsewhere: Path, capfd: pytest.CaptureFixture
):
    args, expected = MISTAKES[mistake]
    assert main.main(args) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and err.startswith("shoal: ") and expected in err, err
    assert not {"│", "╭", "Traceback"} & set(err.split())
    assert list(elsewhere.iterdir()) == []


def test_train_then_evaluate(elsewhere: Path, capfd: pytest.CaptureFixture):
    assert main.main(["train", *PAIR, *TINY, "--name", "one"]) == 0
    told = capfd.readouterr().out
    assert "compiling the training program" in told and "each step enters 4 gradient update" in told
    assert main.main(["evaluate", "runs/one", "--episodes", "3", "--json"]) == 0
    facts = json.loads(capfd.readouterr().out)
    summary = json.loads((elsewhere / "runs/one/summary.json").read_text())
    assert facts["teams"]["agent"]["return"] == pytest.approx(summary["scores"]["agent"])
    assert main.main(["evaluate", "runs/one", "--episodes", "3", "--sampled", "--seed", "5"]) == 0
    assert "3 sampled episodes" in capfd.readouterr().out


def test_a_run_is_never_overwritten(elsewhere: Path, capfd: pytest.CaptureFixture):
    (elsewhere / "runs" / "one").mkdir(parents=True)
    assert main.main(["train", *PAIR, *TINY, "--name", "one"]) == 2
    assert "exists already" in capfd.readouterr().err
    assert list((elsewhere / "runs" / "one").iterdir()) == []


def test_teams_with_algorithms_of_their_own(elsewhere: Path):
    sizes = [
        "--steps",
        "160",
        "--games",
        "4",
        "--window",
        "5",
        "--eval-episodes",
        "2",
        "--evaluations",
        "0",
    ]
    own = ["--even.hidden", "4", "--even.lr", "1e-2", "--even.critic-minibatches", "2"]
    assert (
        main.main(
            [
                "train",
                "--team",
                "even=coma",
                "--team",
                "odd=random",
                "matrix/matching_pennies",
                *sizes,
                *own,
            ]
        )
        == 0
    )
    (run,) = (elsewhere / "runs").iterdir()
    teams = json.loads((run / "config.json").read_text())["teams"]
    assert {team: one["algorithm"] for team, one in teams.items()} == {
        "even": "coma",
        "odd": "random",
    }
    assert teams["even"]["options"]["lr"] == 1e-2


def test_a_preset_lies_under_the_options_and_is_announced(monkeypatch: pytest.MonkeyPatch):
    from shoal.config.arguments import compose_arguments

    config, messages = compose_arguments(["mappo", "mpe/simple_spread", "--games", "64"])
    assert "--no-preset" in messages[0]
    assert config.settings.games == 64 and config.settings.steps == 12_000_000
    config, messages = compose_arguments(["mappo", "mpe/simple_spread", "--no-preset"])
    assert messages == [] and config.settings.steps == 1_000_000


def test_flags_may_be_spelled_freely():
    from shoal.config.arguments import compose_arguments

    config, _ = compose_arguments(
        [
            "--steps",
            "2e6",
            "--no-greedy",
            "ppo",
            "--env.n=5",
            "mpe/simple_spread",
            "--critic_lr",
            "1e-3",
        ]
    )
    assert config.settings.steps == 2_000_000 and not config.settings.greedy
    assert config.options["N"] == 5 and config.teams["agent"][1].critic_lr == 1e-3


@pytest.mark.parametrize("said", ["True", "false"])
def test_an_environments_option_may_be_called_as_a_switch_of_ours(said: str):
    """`continuous_actions` is a switch of native games; PettingZoo's takes a value."""
    from shoal.config.arguments import compose_arguments

    pytest.importorskip("mpe2")
    config, _ = compose_arguments(
        ["ppo", "--env.continuous_actions", said, "pz:mpe2.simple_spread_v3"]
    )
    assert config.options["continuous_actions"] is (said == "True")


@pytest.mark.parametrize(
    "words", [["--help"], ["train", "--help"], ["train", *PAIR, "--help"], ["evaluate", "--help"]]
)
def test_help_teaches(words: list[str], capsys: pytest.CaptureFixture):
    try:
        code = main.main(words)
    except SystemExit as leaving:
        code = leaving.code
    assert code == 0
    assert "shoal " in capsys.readouterr().out


def test_list_and_info(capsys: pytest.CaptureFixture):
    assert main.main(["list"]) == 0
    told = capsys.readouterr().out
    assert "mappo" in told and "mpe/simple_tag" in told and "3 adversary, 1 agent" in told
    assert main.main(["info", "ippo"]) == 0
    told = capsys.readouterr().out
    assert "Schulman" in told and "--clip " in told and "before its gradient stops" in told
    assert main.main(["info", "mpe/simple_speaker_listener"]) == 0
    told = capsys.readouterr().out
    assert "sees 11 numbers" in told and "--env.max-cycles" in told


def test_the_module_runs_and_starts_light():
    code = "import sys, shoal; sys.exit('jax' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    asked = subprocess.run(
        [sys.executable, "-m", "shoal", "fly"], capture_output=True, text=True, check=False
    )
    assert asked.returncode == 2 and asked.stderr.startswith("shoal: there is no command")


def test_ctrl_c_does_not_interrupt_an_import(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    """Libraries written in C++ abort; in JAX's a Ctrl-C in the first second did that, or two."""
    imported = []

    def interrupted(name: str, package: str) -> Any:
        for _ in range(2):
            signal.raise_signal(signal.SIGINT)
        imported.append(name)
        return import_module(name, package)

    monkeypatch.setattr("shoal.cli.main.import_module", interrupted)
    assert main.main(["list"]) == 130 and imported == [".catalogue"]
    assert capsys.readouterr() == ("", "shoal: stopped\n")


def test_ctrl_c_while_the_process_ends_does_not_change_its_exit_code():
    code = """
import atexit, time
from shoal.cli.main import entry

@atexit.register
def last():
    print("ending", flush=True)
    time.sleep(0.5)

entry(["list", "--help"])
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout
        while run.stdout.readline() != "ending\n":
            assert run.poll() is None
        run.send_signal(signal.SIGINT)
        assert run.wait(60) == 0


@pytest.mark.parametrize(
    "command",
    [
        # a callback of the garbage collector, as JAX has one, cannot raise; nor can this
        """
class Callback:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
        time.sleep(0)

def command(*_):
    Callback()
    for _ in range(600):
        time.sleep(0.1)
""",
        # what still runs, such as a compiled program, crashes as the interpreter ends
        """
def command(*_):
    atexit.register(os.abort)
    signal.raise_signal(signal.SIGINT)
""",
    ],
)
def test_one_ctrl_c_ends_a_command_wherever_it_comes(command: str):
    code = f"""
import atexit, os, signal, time
from shoal.cli import main
{command}
main._command = lambda _: command
main.entry(["list"])
"""
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=50, check=False
    )
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "shoal: stopped\n")


def test_a_second_ctrl_c_ends_a_process_whose_libraries_are_busy():
    """A compiler does not return to Python, whose own handlers have to wait for it."""
    code = """
import ctypes, signal
from shoal.cli import main

def busy(*_):
    signal.signal(signal.SIGINT, lambda *_: None)  # it would have to wait
    print("busy", flush=True)
    mutex = ctypes.create_string_buffer(128)
    for _ in range(2):
        ctypes.CDLL(None).pthread_mutex_lock(mutex)

main.IMPATIENCE = 0.1
main.main = busy
main.entry([])
"""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as run:
        try:
            assert run.stdout and run.stdout.readline() == "busy\n"
            for _ in range(2):
                run.send_signal(signal.SIGINT)
                time.sleep(0.2)
            assert run.wait(60) == 130
            assert run.stderr and run.stderr.read() == "shoal: stopped\n"
        finally:
            run.kill()


@pytest.mark.slow
def test_options_of_a_native_game_may_change_who_plays_in_a_team(tmp_path: Path) -> None:
    words = (
        "train --team adversary=a2c --team agent=random mpe/simple_tag --env.num-adversaries 2"
        " --steps 200"
    )
    sizes = "--games 2 --window 25 --eval-episodes 2 --evaluations 0 --adversary.hidden 4"
    assert main.main([*words.split(), *sizes.split(), "--out", str(tmp_path), "--name", "run"]) == 0
    assert shoal.load(tmp_path / "run").config.game.teams["adversary"].n == 2

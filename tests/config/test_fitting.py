"""Small runs: what is merely too large by default is fitted and told; what was asked for is kept,
or refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.config.arguments import compose_arguments
from shoal.config.compose import Request, compose
from shoal.config.config import Config
from shoal.errors import ShoalError

PENNIES = "matrix/matching_pennies"
WORDS = {  # what is asked for, what is told of it, what is then so
    "warmup": (
        "dqn test/identity --steps 1000 --games 4 --window 5",
        ["warmup 10,000 does not fit 1,000 steps: using 100"],
        {"warmup": 100},
    ),
    "minibatches": (
        "ppo test/identity --games 10 --window 5",
        ["minibatches 4 does not fit 50 rows (games x window) on each device: using 2"],
        {"minibatches": 2},
    ),
    "minibatches of games": (
        "coma test/identity --games 10 --torso gru",
        ["critic_minibatches 4 does not fit 10 games on each device: using 2"],
        {"critic_minibatches": 2},
    ),
    "games": (
        "qmix test/identity --steps 1000",
        [
            "games 128 does not fit 1,000 steps: using 4",
            "warmup 10,000 does not fit 1,000 steps: using 100",
        ],
        {"games": 4, "window": 25},
    ),
    "a window": (
        "a2c test/identity --steps 1000 --games 100",
        ["window 25 does not fit 1,000 steps of 100 games: using 5"],
        {"games": 100, "window": 5},
    ),
    "both": (
        "a2c test/identity --steps 60",
        [
            "games 128 does not fit 60 steps: using 4",
            "window 25 does not fit 60 steps of 4 games: using 5",
        ],
        {"games": 4, "window": 5},
    ),
    "a preset": (
        "qmix mpe/simple_spread --steps 2000 --games 8",
        ["using the preset", "warmup 10,000 does not fit 2,000 steps: using 200"],
        {"warmup": 200, "games": 8},
    ),
    "a batch": (
        "dqn test/identity --devices 2 --steps 20e3 --length 8 --batch 32",
        [],
        {"batch": 32, "warmup": 10_000},
    ),
    "capacity": (
        "dqn test/identity --games 60000 --window 5 --steps 1e6 --devices 1 --length 12",
        ["capacity 500,000 does not fit windows of 12 steps of 60,000 games: using 840,000"],
        {"capacity": 840_000},
    ),
    "past selves": (
        f"ppo {PENNIES} --self-play --games 6 --window 4 --even.minibatches 1 --devices 1",
        ["groups 4 does not fit 6 games on each device: using 3"],
        {"groups": 3},
    ),
    "a team of two": (
        f"--team even=dqn --team odd=dqn {PENNIES} --steps 1000 --games 4 --even.warmup 7",
        ["warmup 10,000 does not fit 1,000 steps: using 100"],
        {"warmup": 100},
    ),
    "nothing": ("mappo test/identity", [], {"games": 128, "window": 25}),
}


def settings_of(config: Config) -> dict[str, Any]:
    """All of them; of two teams' the last."""
    found = dict(vars(config.settings))
    for _, own in config.teams.values():
        found |= vars(own)
    return found


@pytest.mark.parametrize("case", WORDS)
def test_a_default_that_is_too_large_is_fitted_and_it_is_said(case: str) -> None:
    words, told, so = WORDS[case]
    config, lines = compose_arguments(words.split())
    assert len(lines) == len(told) and all(
        line.startswith(start) for line, start in zip(lines, told, strict=True)
    )
    found = settings_of(config)
    assert {name: found[name] for name in so} == so
    assert Config.from_json(config.to_json()) == config  # what is saved is what fits


REFUSED = {
    "dqn test/identity --steps 1000 --games 4 --warmup 10000": "lower warmup, now 10000",
    "dqn test/identity --steps 1000 --games 4 --warmup=1e4": "lower warmup",
    "ppo test/identity --games 10 --window 5 --minibatches 4": "cannot be split into 4 equal"
    " minibatches",
    "a2c test/identity --steps 1000 --games 128 --window 25": "1000 steps are too few",
    "a2c test/identity --steps 10": "10 steps are too few",
    "dqn test/identity --capacity 100 --window 5": "raise capacity",
    f"--team even=dqn --team odd=random {PENNIES} --steps 1000 --games 4 --even.warmup 10000": (
        "lower warmup"
    ),
}


@pytest.mark.parametrize("words", REFUSED)
def test_what_was_asked_for_is_refused_even_if_it_is_the_default(words: str) -> None:
    with pytest.raises(ShoalError, match=REFUSED[words]):
        compose_arguments(words.split())


@pytest.mark.slow
def test_the_same_from_python(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    few = {"steps": 1000, "games": 4}
    config, told = compose(Request("test/identity", "dqn", options=few))
    assert (
        told == ["warmup 10,000 does not fit 1,000 steps: using 100"]
        and config.teams["agent"][1].warmup == 100
    )
    with pytest.raises(ShoalError, match="lower warmup"):
        compose(Request("test/identity", "dqn", options=few | {"warmup": 10_000}))
    sides = {"even": ("dqn", {"warmup": 5}), "odd": ("dqn", {})}
    config, told = compose(Request(PENNIES, teams=sides, options=few))
    assert [config.teams[team][1].warmup for team in sides] == [5, 100] and len(told) == 1
    # one algorithm for the teams that are not named, as on the command line
    config, _ = compose(Request(PENNIES, "dqn", {"even": sides["even"]}, few))
    words = f"dqn {PENNIES} --team even=dqn --even.warmup 5 --steps 1000 --games 4"
    assert config == compose_arguments(words.split())[0]
    tiny = {"hidden": 4, "evaluations": 0, "eval_episodes": 2, "out": str(tmp_path)}
    result = shoal.train("dqn", "test/identity", steps=100, **tiny)
    assert (
        "games 128 does not fit 100 steps: using 4" in capsys.readouterr().out
        and result.steps >= 100
    )


@pytest.mark.parametrize("name", ["ppo", "qmix"])
def test_fewer_games_than_devices_are_refused_in_a_sentence(name: str) -> None:
    with pytest.raises(ShoalError, match="games cannot be shared evenly by 2 devices"):
        shoal.train(name, "test/identity", steps=400, games=1, devices=2, quiet=True)


def test_a_saved_config_is_fitted_to_other_settings_of_the_run(tmp_path: Path) -> None:
    """As the words it was made of would be; what is asked for beside it stays."""
    file = tmp_path / "config.json"
    saved, _ = compose_arguments(["dqn", "test/identity", "--hidden", "4", "--steps", "1e6"])
    file.write_text(json.dumps(saved.to_json()))
    config, messages = compose_arguments([str(file), "--steps", "1000"])
    assert messages == [
        "games 128 does not fit 1,000 steps: using 4",
        "warmup 10,000 does not fit 1,000 steps: using 100",
    ]
    found = settings_of(config)
    assert (found["games"], found["warmup"], found["hidden"]) == (4, 100, 4)
    with pytest.raises(ShoalError, match="1000 steps are too few for one update of 128 games"):
        compose_arguments([str(file), "--steps", "1000", "--games", "128", "--window", "25"])
    assert compose_arguments([str(file), "--seed", "3"])[1] == []

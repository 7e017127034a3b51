"""Trap 40: users' names are theirs. A team called as something of ours is trained, logged, resumed
and reported."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from helpers import quick
from pettingzoo import ParallelEnv

import shoal
from shoal import envs
from shoal.cli import main
from shoal.config.arguments import _pair, compose_arguments
from shoal.envs.native.matrix import MatrixGame
from shoal.report.results import of_folders
from shoal.store import checkpoint, folder
from shoal.store.metrics_file import read, tag
from shoal.sweep.progress import Follower

OURS = (
    "steps",
    "returns",
    "each",
    "episodes",
    "learning",
    "seconds",
    "env",
    "run",
    "how",
    "all",
    "evaluation",
)
OURS += (
    "score",
    "agent_id",
    "options",
    "teams",
    "team",
    "name",
    "lr",
    "length",
    "film",
    "self",
    "count",
    "index",
)
FOREIGN = (
    "red team",
    "agent-0",
    "class",
    "3",
    "équipe",
    "a.b",
    "a/b",
    "100%",
    "[bold]",
    "Red",
    "red",
)
PAIRS = [("steps", "returns"), ("env", "run"), ("evaluation", "a/b")]
SIZES = {"games": 4, "window": 5, "steps": 200, "eval_episodes": 3, "evaluations": 1}


@dataclass(frozen=True)
class Duel(MatrixGame):
    """Two against one: the first team earns 1 a round, the second -2."""

    repetitions: int = 4
    """rounds per episode"""

    name = "test/duel"

    def payoff(self) -> np.ndarray:
        earned = np.ones((3, 2, 2, 2))
        earned[2] = -2
        return earned


def duel(one: str, other: str) -> type:
    return type("Named", (Duel,), {"sides": {one: 2, other: 1}, "__doc__": Duel.__doc__})


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / folder.METRICS).read_text().splitlines()]


def assert_told(run: Path, one: str, other: str) -> None:
    """Every number of the run stands under the right name, wherever it is told."""
    wanted = {one: 4.0, other: -8.0}
    summary = json.loads((run / folder.SUMMARY).read_text())
    assert summary["scores"] == summary["random"] == summary["before"] == wanted
    logged = lines(run)
    told = [line for line in logged if f"{tag(one)}/return" in line]
    assert told and all(
        line[f"{tag(team)}/return"] == wanted[team] for line in told for team in wanted
    )
    looks = [line for line in logged if "evaluation/length" in line]
    assert all(
        line[f"evaluation/{tag(team)}/return"] == wanted[team] for line in looks for team in wanted
    )
    assert all(
        line[f"evaluation/{tag(one)}/{tag(f'{one}_{i}')}/return"] == 4.0
        for line in looks
        for i in range(2)
    )
    assert [line["env_step"] for line in logged] == sorted(line["env_step"] for line in logged)
    assert any(f"{tag(one)}/actor_loss" in line for line in logged)
    assert (
        Follower(run).progress().scores == wanted
        and Follower(run).progress().steps == summary["steps"]
    )


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), quick(PAIRS, 1))
def test_trap_40_teams_may_be_called_as_anything_of_ours(
    one: str,
    other: str,
    elsewhere: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    """Trained from the command line, each with its own options; evaluated, resumed, reported."""
    monkeypatch.setitem(envs.GAMES, Duel.name, duel(one, other))
    sizes = [
        word
        for name, value in SIZES.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    flags = {team: "team.env" if team == "env" else team for team in (one, other)}
    own = [
        f"--{flags[one]}.hidden",
        "4",
        f"--{flags[one]}.lr",
        "0.01",
        f"--{flags[one]}.minibatches",
        "1",
    ]
    own += [
        f"--{flags[other]}.hidden",
        "3",
        f"--{flags[other]}.lr",
        "0.02",
        f"--{flags[other]}.warmup",
        "20",
    ]
    own += [f"--{flags[other]}.capacity", "200", "--env.repetitions", "4", "--devices", "2"]
    words = [
        "train",
        "--team",
        f"{one}=ppo",
        "--team",
        f"{other}=dqn",
        Duel.name,
        *sizes,
        *own,
        "--name",
        "run",
    ]
    assert main.main([*words, "--out", "all"]) == 0, capsys.readouterr().err
    run = elsewhere / "all" / "run"
    assert_told(run, one, other)
    config = json.loads((run / folder.CONFIG).read_text())
    rates = {team: side["options"]["lr"] for team, side in config["teams"].items()}
    assert rates == {one: 0.01, other: 0.02} and config["options"] == {"repetitions": 4}
    # What was read back goes on as it was.
    history = read(run, duel(one, other)().teams)
    assert [point.played.length.tolist() for point in history.points] == [[4, 4, 4]] * len(
        history.points
    )
    (run / folder.SUMMARY).unlink()
    newest = next(checkpoint.places(run))
    shutil.rmtree(newest)
    assert main.main(["resume", str(run)]) == 0
    assert_told(run, one, other)
    capsys.readouterr()
    assert (
        main.main(["evaluate", str(run), "--episodes", "2", "--json", "--team", f"{other}=random"])
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert {team: score["return"] for team, score in told["teams"].items()} == {
        one: 4.0,
        other: -8.0,
    }
    study = of_folders([elsewhere / "all"])
    assert not study.failures and {task.team: study.random(task) for task in study.tasks} == {
        one: 4.0,
        other: -8.0,
    }


@pytest.mark.parametrize("name", [*OURS, *FOREIGN])
def test_trap_40_a_teams_options_are_found_by_its_name(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(envs.GAMES, Duel.name, duel(name, "other"))
    flag = "team.env" if name == "env" else name
    words = [
        "--team",
        f"{name}=ppo",
        "--team",
        "other=random",
        Duel.name,
        f"--{flag}.lr",
        "0.5",
        "--env.repetitions=7",
    ]
    config, _ = compose_arguments(words)
    assert config.teams[name][1].lr == 0.5 and config.options == {"repetitions": 7}


def test_trap_40_names_in_metrics_are_never_alike() -> None:
    names = [*OURS, *FOREIGN, "%evaluation", "%25", "%2F", "%", "/"]
    assert len({tag(name) for name in names}) == len(names)
    assert all("/" not in tag(name) for name in names) and tag("adversary_0") == "adversary_0"


class Hosted(ParallelEnv):
    """The same duel on the host."""

    metadata = {"name": "duel"}

    def __init__(self, one: str = "steps", other: str = "returns"):
        self.possible_agents = [f"{one}_0", f"{one}_1", other]
        self.worth = dict(zip(self.possible_agents, (1.0, 1.0, -2.0), strict=True))

    def observation_space(self, agent: str) -> spaces.Space:
        return spaces.Box(-1, 1, (1,))

    def action_space(self, agent: str) -> spaces.Space:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: dict | None = None) -> tuple[dict, dict]:
        self.agents, self.left = list(self.possible_agents), 4
        return self._seen(), {agent: {} for agent in self.agents}

    def step(self, actions: dict) -> tuple:
        self.left -= 1
        agents, over = self.agents, self.left == 0
        answer = (
            self._seen(),
            dict(self.worth),
            dict.fromkeys(agents, over),
            dict.fromkeys(agents, False),
        )
        if over:
            self.agents = []
        return *answer, {agent: {} for agent in agents}

    def _seen(self) -> dict:
        return {agent: np.ones(1, np.float32) for agent in self.possible_agents}

    def close(self) -> None:
        """Nothing is held."""


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), [("steps", "returns"), ("evaluation", "env")])
def test_trap_40_the_same_on_the_host(one: str, other: str, elsewhere: Path) -> None:
    sides = {one: ("ppo", {"hidden": 4, "minibatches": 1}), other: "random"}
    named = {"one": one, "other": other}
    how: dict[str, Any] = SIZES | {"workers": 0, "quiet": True, "out": "all", "name": "run"}
    run = shoal.train(f"{__name__}:Hosted", teams=sides, env=named, **how).path
    assert_told(elsewhere / run, one, other)


def test_teams_may_have_an_equals_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    """In flags, where a value would follow it, a dash stands in its place."""
    monkeypatch.setitem(envs.GAMES, Duel.name, duel("a=b", "c=d=e"))
    words = f"--team a=b=ppo --team c=d=e=dqn {Duel.name} --a-b.lr 0.01 --c-d-e.hidden 3"
    config, _ = compose_arguments(words.split())
    assert [(team, name) for team, (name, _) in config.teams.items()] == [
        ("a=b", "ppo"),
        ("c=d=e", "dqn"),
    ]
    assert config.teams["a=b"][1].lr == 0.01 and config.teams["c=d=e"][1].hidden == 3
    assert _pair("agent=frozen:runs/lr=1") == ("agent", "frozen:runs/lr=1")
    assert _pair("a:b=ppo") == ("a:b", "ppo")

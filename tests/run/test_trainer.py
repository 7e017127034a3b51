"""A whole tiny run: its folder, its repeatability, its policy read back, its endings."""

from __future__ import annotations

import csv
import json
import os
import shlex
import signal
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from helpers import decided, opened

import shoal
from shoal import algorithms, envs
from shoal.config import presets
from shoal.config.arguments import compose_arguments
from shoal.config.config import Config
from shoal.config.settings import Settings
from shoal.engine.episodes import Episodes
from shoal.engine.loop import Metrics
from shoal.errors import ShoalError
from shoal.monitor.console import Console, opposed
from shoal.monitor.metrics import Diverged
from shoal.monitor.sinks import Log
from shoal.options import fill
from shoal.run import trainer
from shoal.store import folder
from shoal.store.player import Player

TINY: dict[str, Any] = {
    "steps": 160,
    "games": 4,
    "window": 5,
    "eval_episodes": 3,
    "evaluations": 1,
    "hidden": 4,
    "minibatches": 1,
    "quiet": True,
}
CLOCKS = {"seconds", "steps_per_second"}


def run(out: Path, **options: Any) -> trainer.Result:
    return shoal.train("ppo", "test/identity", **(TINY | {"out": str(out)} | options))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> trainer.Result:
    return run(tmp_path_factory.mktemp("runs"), name="done")


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in (path / folder.METRICS).read_text().splitlines()]


def test_final_episodes_are_those_of_a_later_evaluation(tmp_path: Path, done: trainer.Result):
    final = run(tmp_path, name="final", final_episodes=7, greedy=False)
    played = shoal.load(final.path).evaluate(7)
    assert final.final == played.score() and final.final_metrics == played.means()
    saved = json.loads((final.path / folder.SUMMARY).read_text())
    assert saved["final"] == final.final
    assert "final" not in json.loads((done.path / folder.SUMMARY).read_text())


def test_the_folder_holds_everything(done: trainer.Result):
    files = {file.name for file in done.path.iterdir()}
    assert files == {
        "config.json",
        "metrics.jsonl",
        "episodes.csv",
        "summary.json",
        "curve.png",
        "policy",
        "best",
        "tensorboard",
        "checkpoints",
        ".lock",
    }
    for place in ("policy", "best"):
        assert {file.name for file in (done.path / place).iterdir()} == {
            "weights.safetensors",
            "policy.json",
        }
    assert any((done.path / "tensorboard").iterdir())
    assert (done.path / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_a_team_whose_agents_play_against_each_other_is_told_of():
    length = np.ones(2, int)
    rows = {
        "each": np.array([[1.0, -1.0], [0.0, 0.0]]),
        "lazy": np.zeros((2, 2)),
        "team": np.array([[1.0, 2.0]] * 2),
    }
    assert opposed(Episodes(rows, length)) == ["each"]


def test_the_protocol_is_stored(done: trainer.Result):
    """Trap 26: the update-to-data ratio; traps 17 and 25: pooling and evaluation rule."""
    protocol = json.loads((done.path / "config.json").read_text())["protocol"]
    assert protocol["teams"] == {"agent": {"reward": "own", "updates_per_step": 4}}
    assert protocol["evaluation"] == {"actions": "greedy", "episodes": 3, "exploration": "none"}
    # and the packages of a game from outside
    assert set(protocol["versions"]) == {"shoal", "jax", "numpy", "python"}
    assert set(envs.versions("pz:mpe2.simple_tag_v3")) == {"pettingzoo", "mpe2"}
    assert (
        set(envs.versions("gym:CartPole-v1")) == {"gymnasium"}
        and envs.versions("nowhere.to_find:make") == {}
    )
    assert protocol["devices"] == 2


OFF_POLICY: dict[str, Any] = {
    "warmup": 40,
    "capacity": 400,
    "batch": 8,
    "length": 4,
    "updates": 3,
    "minibatches": None,
}


def replay_run(out: Path, algorithm: str, **options: Any) -> trainer.Result:
    sizes = {key: value for key, value in (TINY | OFF_POLICY).items() if value is not None}
    return shoal.train(algorithm, "test/identity", **(sizes | {"out": str(out)} | options))


@pytest.mark.parametrize("name", ["vdn", "sac"])
def test_trap_17_26_a_run_with_a_replay_stores_its_protocol_and_its_policy(
    name: str, tmp_path: Path
):
    """3 x 8 x 4 transitions learnt from for every 4 x 5 played; nothing is told of losses before
    any is there."""
    result = replay_run(tmp_path, name, reward="sum")
    protocol = json.loads((result.path / "config.json").read_text())["protocol"]
    assert protocol["teams"] == {"agent": {"reward": "sum", "updates_per_step": 4.8}}
    told = [line for line in lines(result.path) if "agent/updates" in line]
    losses = [name for name in told[-1] if name.endswith("loss")]
    assert losses and told[-1]["agent/updates"] > 0
    for line in told:
        assert line["agent/updates"] > 0 or not any(name in line for name in losses)
    assert told[0]["agent/updates"] == 0 and sum(line["agent/updates"] for line in told) % 3 == 0
    assert shoal.load(result.path).evaluate(3, seed=0).score() == result.scores


def test_equal_seeds_repeat_a_run_with_a_replay_exactly(tmp_path: Path):
    weights = []
    for name, seed in (("one", 0), ("again", 0), ("other", 1)):
        result = replay_run(tmp_path, "dqn", name=name, seed=seed, priority=0.6)
        weights.append((result.path / "policy" / "weights.safetensors").read_bytes())
    assert weights[0] == weights[1] != weights[2]


def test_evaluations_before_during_and_after(done: trainer.Result):
    """Trap 25: one row per evaluation episode and agent, and evaluation is no training step."""
    evaluated = [line["env_step"] for line in lines(done.path) if "evaluation/agent/return" in line]
    assert evaluated[0] == 0 and evaluated[-1] == done.steps and len(evaluated) == 3
    with (done.path / "episodes.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 3 * 2  # evaluations x episodes x agents
    last = [float(row["return"]) for row in rows if int(row["env_step"]) == done.steps]
    assert np.mean(last) == pytest.approx(done.scores["agent"], abs=1e-5)
    assert {row["length"] for row in rows} == {"10"}


def test_only_valid_steps_are_counted(done: trainer.Result):
    """Trap 4: a game of 10 steps takes 11 instants, so 160 steps need 9 windows of 4 x 5."""
    assert 160 <= done.steps < 180
    assert done.steps == lines(done.path)[-1]["env_step"]


def test_training_returns_are_those_of_whole_episodes(tmp_path: Path):
    """Every step of this game pays 1: each episode returns its length, wherever windows cut it."""
    plain = Config.build(
        "test/endless",
        {"agent": ("random", {})},
        {"length": 7},
        {"steps": 400, "games": 4, "window": 3, "out": str(tmp_path)},
    )
    result = trainer.train(plain, quiet=True)
    told = [line["agent/return"] for line in lines(result.path) if "agent/return" in line]
    assert told and told == pytest.approx([7.0] * len(told))


def test_equal_seeds_repeat_a_run_exactly(done: trainer.Result, tmp_path: Path):
    again, other = run(tmp_path, name="again"), run(tmp_path, name="other", seed=1)
    bare = [
        [{k: v for k, v in line.items() if k not in CLOCKS} for line in lines(r.path)]
        for r in (done, again, other)
    ]
    assert bare[0] == bare[1] != bare[2]
    rows = [(r.path / "episodes.csv").read_bytes() for r in (done, again, other)]
    assert rows[0] == rows[1] != rows[2]
    weights = [
        (r.path / "policy" / "weights.safetensors").read_bytes() for r in (done, again, other)
    ]
    assert weights[0] == weights[1] != weights[2]


def test_a_loaded_policy_scores_as_it_did(done: trainer.Result):
    player = shoal.load(done.path)
    assert player.evaluate(3, seed=0).score() == done.scores
    assert player.steps == done.steps


def test_a_player_acts_as_the_evaluator_does(done: trainer.Result):
    """By agent name, one game at a time, against the batched policy on the same views."""
    player = shoal.load(done.path)
    algorithm, learner = player.algorithms["agent"], player.learners["agent"]
    _, views = opened(player.config.game, 4, seed=3)
    view = views["agent"]
    carry = algorithm.carry(learner, 4)
    key = jax.random.key(0)
    batched = decided(algorithm, learner, key, view, carry, player.clock, True).action
    for game in range(4):
        player.reset()
        actions = player.act({"agent_0": view.obs[game, 0], "agent_1": view.obs[game, 1]})
        assert actions == {"agent_0": int(batched[game, 0]), "agent_1": int(batched[game, 1])}
    assert player.act({"agent_1": view.obs[3, 1]}) == {"agent_1": int(batched[3, 1])}
    masked = player.act(
        {"agent_1": view.obs[3, 1]}, legal={"agent_1": [False, False, True, False]}, greedy=False
    )
    assert masked == {"agent_1": 2}
    with pytest.raises(ShoalError, match="agent_7"):
        player.act({"agent_7": view.obs[0, 0]})
    with pytest.raises(ShoalError, match="observes 4 numbers, not 3"):
        player.act({"agent_0": [0, 0, 0]})


def test_a_player_remembers_until_it_is_reset():
    config = Config.build("test/memory", {"agent": ("a2c", {"torso": "gru", "hidden": 4})}, {}, {})
    player = Player(config, {"agent": config.algorithms["agent"].init(np.random.default_rng(0))}, 0)
    seen = {
        agent: np.ones(config.game.teams["agent"].obs)
        for agent in config.game.teams["agent"].agents
    }
    carries = []
    for _ in range(2):
        player.reset()
        player.act(seen)
        carries.append(np.asarray(player.carries["agent"].hidden))
    player.act(seen)
    np.testing.assert_array_equal(*carries)
    assert not np.array_equal(carries[0], player.carries["agent"].hidden)


def test_a_config_survives_json(done: trainer.Result):
    stored = json.loads((done.path / "config.json").read_text())
    config = Config.from_json(stored)
    assert config.to_json() == {
        name: stored[name] for name in ("env", "options", "teams", "settings")
    }
    assert config == Config.from_json(json.loads(json.dumps(config.to_json())))


@pytest.mark.parametrize(("algorithm", "env"), presets.shipped())
def test_a_preset_fits_its_dataclasses_and_differs_from_them(algorithm: str, env: str):
    tables = presets.load(algorithm, env)
    kind = algorithms.find(algorithm)
    assert kind.name == algorithm
    teams = {
        team: (algorithm, tables["algorithm"]) for team in envs.make(env, **tables["env"]).teams
    }
    Config.build(env, teams, tables["env"], tables["settings"])
    command = shlex.split(presets.path(algorithm, env).read_text().splitlines()[0])
    assert command[:3] == ["#", "shoal", "train"]
    config, messages = compose_arguments(command[3:])
    assert config.env in (env, f"{env}/{config.env.partition('/')[2]}")  # or a size of it
    assert f"the preset of {algorithm} on" in messages[0]


def test_presets_of_teams_are_put_side_by_side():
    """Each team's algorithm has its own; the run's settings are those of the first team that has
    any."""
    env = "mpe/simple_spread"
    both = presets.sides({"one": "random", "two": "mappo", "three": "coma"}, env)
    mappo, coma = presets.load("mappo", env), presets.load("coma", env)
    assert both.teams["two"] == mappo["algorithm"] and both.teams["three"] == coma["algorithm"]
    assert both.settings == mappo["settings"] and both.used == ("mappo", "coma")
    assert presets.sides({"": "mappo"}, env, wanted=False) == ({}, {}, {"": {}}, ())
    assert presets.note((), env) == ""
    note = presets.note(("mappo", "coma"), env)
    assert "mappo and of coma on mpe/simple_spread" in note and "--no-preset" in note


def test_wrong_values_are_named():
    with pytest.raises(ShoalError, match="did you mean 'games'"):
        fill(Settings, {"gamse": 3}, "a run")
    with pytest.raises(ShoalError, match=r"games must be a whole number, not 2\.5"):
        fill(Settings, {"games": 2.5}, "a run")
    with pytest.raises(ShoalError, match="greedy must be true or false, not 1"):
        fill(Settings, {"greedy": 1}, "a run")
    with pytest.raises(ShoalError, match="reward must be one of own, mean, sum, not 'all'"):
        fill(algorithms.find("ppo").Config, {"reward": "all"}, "ppo")
    assert fill(Settings, {"steps": 2e6}, "a run").steps == 2_000_000
    assert fill(Settings, {"steps": np.int64(7)}, "a run").steps == 7


def test_mistakes_from_python_are_shoal_errors(tmp_path: Path):
    for ids, options, sentence in (
        (("ppo", "test/identity"), {"hiden": 4}, "did you mean 'hidden'"),
        (("ppo",), {}, "give an algorithm and an environment"),
        (("mpe/simple_tag",), {"teams": {"adversary": "ppo"}}, "team 'agent'"),
        (
            ("mpe/simple_tag",),
            {"teams": {"adversary": "ppo", "agent": "ppo"}, "lr": 1},
            "belong in teams",
        ),
        (
            ("mpe/simple_tag",),
            {"teams": {"adversary": "ppo", "gent": "ppo"}},
            "did you mean 'agent'",
        ),
    ):
        with pytest.raises(ShoalError, match=sentence):
            shoal.train(*ids, out=str(tmp_path), **options)
    assert list(tmp_path.iterdir()) == []


def test_a_signal_ends_the_run_cleanly(tmp_path: Path):
    class Killer(shoal.Callback):
        def on_iteration(self, run: Any, values: Any) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    result = run(tmp_path, name="cut", callbacks=[Killer()])
    assert result.stopped == signal.SIGTERM and 0 < result.steps < 160
    assert signal.getsignal(signal.SIGTERM) is before
    assert json.loads((result.path / "summary.json").read_text())["stopped"] == signal.SIGTERM
    assert shoal.load(result.path).evaluate(3, seed=0).score() == result.scores


def test_a_loss_that_is_no_number_stops_the_run(tmp_path: Path):
    config = Config.build(
        "test/identity",
        {"agent": ("ppo", {"hidden": 4, "minibatches": 1})},
        {},
        {k: TINY[k] for k in ("steps", "games", "window")} | {"out": str(tmp_path)},
    )
    under_way = trainer.Trainer(config, Console(quiet=True))
    path = folder.plan(config)
    folder.create(path, config)
    metrics = Metrics(
        steps=np.array([20, 40]),
        episodes=np.zeros(2),
        returns={"agent": np.zeros(2)},
        each={"agent": np.zeros((2, 2))},
        learning={
            "agent": {"actor_loss": np.array([0.0, 1.0]), "critic_loss": np.array([1.0, np.nan])}
        },
    )
    with (
        Log(path) as log,
        pytest.raises(Diverged, match="agent/critic_loss stopped being a number"),
    ):
        under_way._attend(path, log)
        under_way.metrics.iteration(metrics, 1.0, {})
    assert lines(path)[-1]["agent/critic_loss"] is None

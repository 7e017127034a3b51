"""Replays hold what was played, drawn and thought."""

import json
import threading

import numpy as np
import pytest
from helpers import TINY

from shoal.cli.main import main
from shoal.config.config import Config
from shoal.errors import ShoalError
from shoal.monitor import film, replay
from shoal.monitor.builtin import builtin
from shoal.monitor.callbacks import Callback
from shoal.monitor.replay import Replays
from shoal.render import Disc, Scene, thoughts
from shoal.run.trainer import train
from shoal.store.player import load

SETTINGS = {"steps": 200, "games": 4, "window": 10, "evaluations": 1, "eval_episodes": 3}


def config(out, **settings):
    sides = {team: ("ppo", {**TINY, "minibatches": 1, "epochs": 1}) for team in TEAMS}
    own = SETTINGS | {"devices": 1, "out": str(out)} | settings
    return Config.build("mpe/simple_tag", sides, {"max_cycles": 5}, own)


TEAMS = ("adversary", "agent")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run with two recorded episodes at each evaluation."""
    out = tmp_path_factory.mktemp("runs")
    return train(config(out, replays=2, name="recorded"), quiet=True).path


@pytest.mark.slow
def test_a_replay_is_an_episode_of_the_evaluation(run):
    files = sorted((run / replay.FOLDER).iterdir())
    assert len(files) == 2 * 3 and files[0].name == "step-000000000-0.json"
    rows = [line.split(",") for line in (run / "episodes.csv").read_text().splitlines()[1:]]
    for path in files:
        said = json.loads(path.read_text())
        assert len(said["frames"]) == len(said["minds"]) == len(said["returns"]) == 6
        mine = [row for row in rows if row[:2] == [str(said["steps"]), str(said["episode"])]]
        for team in TEAMS:
            earned = np.mean([float(row[4]) for row in mine if row[2] == team])
            assert said["returns"][-1][team] == pytest.approx(earned, rel=1e-3, abs=1e-3)
        assert path.stat().st_size < 40_000


def test_a_run_does_not_wait_for_the_programs_of_its_replays(tmp_path, monkeypatch):
    trained = threading.Event()
    prepare = film.Camera.prepare

    class Begun(Callback):
        def on_iteration(self, run, values):
            trained.set()

    def late(camera, *about):
        assert trained.wait(60), "training waits for the camera"
        prepare(camera, *about)

    monkeypatch.setattr(film.Camera, "prepare", late)
    path = train(config(tmp_path, replays=1, evaluations=0), True, [Begun()]).path
    first, last = sorted((path / replay.FOLDER).iterdir())
    assert json.loads(first.read_text())["steps"] == 0 < json.loads(last.read_text())["steps"]


@pytest.mark.slow
def test_minds_hold_what_agents_saw_thought_and_did(run):
    said = json.loads(sorted((run / replay.FOLDER).iterdir())[-1].read_text())
    for now in said["minds"][:-1]:
        for team, mind in now.items():
            count = len(said["teams"][team])
            assert np.shape(mind["preferences"]) == (count, 5) and len(mind["values"]) == count
            np.testing.assert_allclose(np.sum(mind["preferences"], -1), 1.0, atol=2e-3)
            # greedy: the action taken is the one preferred
            assert mind["actions"] == np.argmax(mind["preferences"], -1).tolist()
    assert "actions" not in said["minds"][-1]["agent"], "nobody acts after the end"
    names = {said["shapes"][i].get("name") for i in said["frames"][0]}
    assert {agent for team in said["teams"].values() for agent in team} <= names


def test_equal_shapes_are_kept_once():
    still = Disc((0.0, 0.0), 0.1)
    scenes = [Scene([still, Disc((x, 0.0), 0.1, name="a")]) for x in (0.0, 0.5, 0.0)]
    take = film.Take(lambda: iter(()), [{"t": 0.0}] * 3, (), lambda: scenes)
    said = replay.replay(take, {}, {})
    assert said["frames"] == [[0, 1], [0, 2], [0, 1]]
    assert said["shapes"][0] == {"kind": "disc", "at": [0, 0], "radius": 0.1}


def test_short_runs_and_games_without_scenes_record_nothing(tmp_path):
    made = builtin(config(tmp_path))
    assert not any(isinstance(one, Replays) for one in made)
    assert replay.wanted(config(tmp_path, steps=100_000)) == 1
    assert replay.wanted(config(tmp_path, steps=100_000, replays=0)) == 0
    assert replay.wanted(config(tmp_path, replays=7)) == 3, "more than are evaluated"
    host = Config.build("gym:CartPole-v1", {"agent": ("ppo", {})}, {}, SETTINGS | {"replays": 1})
    assert replay.wanted(host) == 0
    with pytest.raises(ShoalError, match=r"replays must be -1 to 100"):
        config(tmp_path, replays=101)


def test_watch_shows_thoughts_beneath_the_picture(run, tmp_path):
    out = tmp_path / "film.gif"
    assert main(["watch", str(run), "--thoughts", "--out", str(out)]) == 0
    plain = tmp_path / "plain.gif"
    assert main(["watch", str(run), "--out", str(plain)]) == 0
    from PIL import Image

    with Image.open(out) as with_thoughts, Image.open(plain) as without:
        assert with_thoughts.height > without.height + 40
        assert with_thoughts.width == without.width


def test_a_run_is_watched_with_the_critic_of_its_checkpoint(run):
    player = load(run)
    assert "critic" not in player.learners["agent"].params
    assert "critic" in player.with_critics(run).learners["agent"].params
    alone = load(run / "policy")
    assert "critic" not in alone.with_critics(run / "policy").learners["agent"].params


def test_games_on_the_host_tell_thoughts_too(tmp_path):
    sides = {"agent": ("ppo", {**TINY, "minibatches": 1, "epochs": 1})}
    own = {"eval_episodes": 2, "workers": 0, "devices": 1, "games": 1}
    c = Config.build("gym:CartPole-v1", sides, {"limit": 4}, own)
    learners = {"agent": c.algorithms["agent"].init(np.random.default_rng(0))}
    camera = film.camera(c.game, c.algorithms, 2, True, thoughts=True)
    try:
        takes = camera.shoot(learners, 0, c.clock(0))
    finally:
        camera.close()
    for take in takes:
        assert len(take.minds) >= take.steps > 0
        mind = take.minds[0]["agent"]
        assert mind.preferences.shape == (1, 2) and mind.values.shape == (1,)
        assert mind.actions[0] == mind.preferences[0].argmax()


def test_bars_of_utilities_begin_at_the_least():
    head = thoughts.AgentThoughts("a", "t", "utilities", np.array([-3.0, 1.0, -np.inf]), None, None)
    np.testing.assert_allclose(thoughts.shares(head), [0.05, 1.0, 0.0])
    none = thoughts.beneath(np.zeros((50, 600, 3), np.uint8), [], {})
    assert none.shape[1:] == (600, 3)

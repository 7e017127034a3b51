"""An environment's own metrics wherever a run tells something: the same numbers under the same
names, and nothing where there are none."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from games import Scored
from jax import Array
from places import SUPPORT

import shoal
from shoal import envs, files
from shoal.cli import main
from shoal.config.config import Config
from shoal.engine.episodes import Episodes
from shoal.errors import ShoalError
from shoal.monitor.callbacks import Callback, Evaluated
from shoal.monitor.console import Console
from shoal.monitor.trackers import Tracker
from shoal.run.trainer import Trainer, resume
from shoal.store import folder
from shoal.store.best import BestPolicy
from shoal.store.metrics_file import COLUMNS
from shoal.sweep.progress import Follower

SIZES = {
    "steps": 240,
    "games": 4,
    "window": 5,
    "eval_episodes": 5,
    "evaluations": 2,
    "devices": 1,
}
LEARNER = {"agent": ("a2c", {"hidden": 4, "layers": 1, "lr": 0.05})}


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """The games can be found by their ids."""
    monkeypatch.setitem(envs.GAMES, "test/scored", Scored)
    monkeypatch.syspath_prepend(str(SUPPORT))


def trained(out: Path, env: str = "test/scored", teams: Any = LEARNER, **more: Any) -> Any:
    options = more.pop("options", {})
    callbacks = more.pop("callbacks", ())
    display = Console(more.pop("quiet", True))
    settings = SIZES | {"out": str(out)} | more
    config = Config.build(env, teams, options, settings)
    return Trainer(config, display, callbacks).run()


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / folder.METRICS).read_text().splitlines()]


def rows(run: Path) -> list[dict[str, str]]:
    with (run / folder.EPISODES).open(newline="") as file:
        return list(csv.DictReader(file))


class Witness(Callback):
    """What callbacks see, and what a tracker would be sent."""

    def __init__(self) -> None:
        self.played: list[Episodes] = []
        self.logged: dict[str, float] = {}

    def on_iteration(self, run: Any, values: dict[str, float]) -> None:
        self.logged |= values

    def on_evaluation(self, run: Any, played: Evaluated) -> None:
        self.played.append(played)
        Tracker.on_evaluation(self, run, played)  # type: ignore[arg-type]

    def _opened(self, run: Any) -> None:
        pass

    def log(self, step: int, values: dict[str, float]) -> None:
        self.logged |= values


@pytest.mark.slow
def test_every_number_is_told_everywhere(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = Witness()
    result = trained(tmp_path, callbacks=[seen], quiet=False, best="right")
    run = result.path
    console = capsys.readouterr().out
    logged = lines(run)
    training = [line for line in logged if "episode/right" in line]
    assert training and all(  # two agents earn what is right
        line["episode/right"] == pytest.approx(2 * line["agent/return"]) for line in training
    )
    looks = [line for line in logged if "evaluation/episode/right" in line]
    assert len(looks) == 4 == len(seen.played)
    for line, played in zip(looks, seen.played, strict=True):
        assert line["evaluation/episode/right"] == played.metrics["right"].mean()
        assert line["evaluation/episode/agent/won"] == played.metrics["agent/won"].mean()
        mine = [row for row in rows(run) if int(row["env_step"]) == line["env_step"]]
        for row in mine:
            said = played.metrics["right"][int(row["episode"])]
            assert float(row["episode/right"]) == said and row["episode/agent/won"] in "01"
    assert list(rows(run)[0]) == [*COLUMNS, "episode/right", "episode/agent/won"]
    summary = json.loads((run / folder.SUMMARY).read_text())
    last = seen.played[-1].means()
    assert summary["metrics"] == result.metrics == last
    assert set(summary["random_metrics"]) == set(last)
    assert f"right {last['right']:.2f}" in console and "best: right" in console
    assert {"episode/right", "evaluation/episode/agent/won"} <= set(seen.logged)  # trackers
    assert Follower(run).progress().metrics == last
    events = b"".join(path.read_bytes() for path in (run / folder.TENSORBOARD).iterdir())
    assert b"evaluation/episode/right" in events and b"episode/agent/won" in events
    best = max(line["evaluation/episode/right"] for line in looks)
    assert (result.best.team, result.best.score) == ("right", best)
    played = shoal.load(run).evaluate(5, seed=0)
    assert played.means() == last


def test_evaluate_prints_what_is_said(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    run = trained(tmp_path, teams={"agent": ("random", {})}).path
    assert main.main(["evaluate", str(run), "--episodes", "4", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    played = shoal.load(run).evaluate(4)
    assert said["metrics"] == played.means()
    assert main.main(["evaluate", str(run), "--episodes", "4"]) == 0
    assert f"right: {played.metrics['right'].mean():.2f} ± " in capsys.readouterr().out


def test_a_resumed_run_tells_on(tmp_path: Path) -> None:
    class Halt(Callback):
        def on_evaluation(self, run: Any, played: Episodes) -> None:
            if run.steps:
                run.stop()

    whole = trained(tmp_path, name="whole", best="right")
    halted = trained(tmp_path, name="halted", best="right", callbacks=[Halt()]).path
    again = resume(halted, quiet=True)
    assert rows(halted) == rows(whole.path)
    assert (again.metrics, again.best) == (whole.metrics, whole.best)


@pytest.mark.slow
def test_nothing_is_told_where_there_is_nothing(tmp_path: Path) -> None:
    run = trained(tmp_path, env="test/identity").path
    assert not any("episode" in name for line in lines(run) for name in line)
    assert (run / folder.EPISODES).read_text().splitlines()[0] == ",".join(COLUMNS)
    for name in (folder.SUMMARY, folder.CONFIG, f"{folder.POLICY}/policy.json"):
        assert "metrics" not in (run / name).read_text(), name


def test_the_best_is_that_of_the_highest_metric(tmp_path: Path) -> None:
    config = Config.build("test/scored", LEARNER, {}, SIZES | {"best": "agent/won"})
    best = BestPolicy(tmp_path, config)
    learners = {"agent": config.algorithms["agent"].init(np.random.default_rng(0))}

    def played(score: float, won: float) -> Episodes:
        said = {"right": np.zeros(1), "agent/won": np.array([won])}
        return Episodes({"agent": np.full((1, 2), score)}, np.ones(1), said)

    taken = [
        best.consider(step, played(*pair), learners)
        for step, pair in enumerate([(5.0, 0.5), (9.0, 0.4), (1.0, 0.8), (9.0, 0.8)])
    ]
    assert taken == [True, False, True, False]
    assert best.evaluation == ("agent/won", 2, 0.8)


HOSTILE = ("env_step", "episode", "team", "return", "length", "seconds", "steps", "agent_0")


@dataclass(frozen=True)
class Hostile(Scored):
    """Calls its metrics as anything of ours is called."""

    name = "test/hostile"
    metrics = (*HOSTILE, "agent/return", "agent/agent_0")

    def episode_metrics(self, world: Any) -> dict[str, Array]:
        return {name: world.right + k for k, name in enumerate(self.metrics)}


@pytest.mark.slow
def test_a_metric_may_be_called_as_anything_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(envs.GAMES, "test/hostile", Hostile)
    result = trained(tmp_path, env="test/hostile", options={"length": 3}, best="length")
    told = rows(result.path)
    assert all(int(row["length"]) == 3 for row in told)
    for line in lines(result.path):
        if "evaluation/length" in line:
            right = line["evaluation/episode/env_step"]
            for k, name in enumerate(Hostile.metrics):
                assert line[f"evaluation/episode/{name}"] == pytest.approx(right + k)
            assert right == pytest.approx(2 * line["evaluation/agent/return"], rel=1e-5)
    assert result.best.team == "length"
    assert main.main(["report", str(tmp_path), "--metric", "length"]) == 0


def test_a_game_that_says_nonsense_ends_the_run_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Nonsense(Scored):
        name = "test/nonsense"

        def episode_metrics(self, world: Any) -> dict[str, Array]:
            return super().episode_metrics(world) | {"right": world.right / 0.0}

    monkeypatch.setitem(envs.GAMES, "test/nonsense", Nonsense)
    with pytest.raises(ShoalError, match="the metric 'right' of test/nonsense was"):
        trained(tmp_path, env="test/nonsense")


@pytest.mark.slow
def test_a_run_on_the_host_is_saved_with_its_metrics(tmp_path: Path) -> None:
    """Its workers agree on them once; whoever reads the folder knows them without opening it."""
    teams = {"red": ("random", {}), "blue": ("random", {})}
    result = trained(tmp_path, env="tallies:make", teams=teams, workers=1, best="red/right")
    saved = json.loads((result.path / folder.CONFIG).read_text())
    assert saved["metrics"] == ["right", "red/right", "won"]
    assert result.metrics["red/right"] == pytest.approx(result.scores["red"])
    assert shoal.load(result.path).config.metrics == ("right", "red/right", "won")
    again = shoal.load(result.path, trust=True).evaluate(5, seed=0, greedy=False)
    assert set(again.metrics) == set(saved["metrics"])
    saved["metrics"] = ["nobody/won"]
    with pytest.raises(ShoalError, match="is of no team"):
        Config.of_policy(saved)


def test_smac_is_won_or_lost(tmp_path: Path) -> None:
    result = trained(
        tmp_path, env="tallies:skirmish", teams={"agent": ("random", {})}, workers=0, best="won"
    )
    assert set(result.metrics) == {"won"} and 0.0 <= result.metrics["won"] <= 1.0
    assert all(row["episode/won"] in "01" for row in rows(result.path))


@pytest.mark.slow
def test_seeds_are_told_together(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    from shoal.sweep import seeds

    for seed in range(2):
        trained(tmp_path / "group", name=f"seed-{seed}", seed=seed)
    summaries = {f"seed-{k}": seeds._summary(tmp_path / "group" / f"seed-{k}") for k in range(2)}
    told = seeds._statistics(summaries)
    each = [one["metrics"]["right"] for one in summaries.values()]
    assert told["metrics"]["right"] == pytest.approx(np.mean(each))
    config = json.loads((tmp_path / "group" / "seed-0" / "config.json").read_text())
    files.write_json(tmp_path / "group" / "group.json", {"seeds": [0, 1], "config": config})
    words = ["evaluate", str(tmp_path / "group"), "--episodes", "2", "--trust"]
    capsys.readouterr()
    assert main.main([*words, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    each = [run["metrics"]["right"] for run in told["runs"]]
    assert told["means"][0]["metrics"]["right"]["mean"] == pytest.approx(np.mean(each))
    assert main.main(words) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["seed-0", "right", f"{each[0]:.2f}"] in [line[:3] for line in shown]
    assert f"{np.mean(each):.2f}" in next(line for line in shown if line[3:4] == ["right"])

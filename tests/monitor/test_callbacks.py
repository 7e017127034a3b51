"""What a run tells as it goes on: callbacks, trackers, the best policy, metric names."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from helpers import (
    LEARNERS,
    OFF,
    PAGES,
    PATHWISE,
    REPLAYED,
    TEAM,
    build,
    mortal,
    on_devices,
    with_pages,
)
from helpers import TINY as SMALL

import shoal
from shoal.config.config import Config
from shoal.engine.loop import Loop, without_device_axis
from shoal.envs import Env, make
from shoal.errors import ShoalError
from shoal.monitor import trackers
from shoal.monitor.callbacks import Callback, Evaluated, Failed, LiveRun
from shoal.monitor.sinks import Log
from shoal.run.trainer import train
from shoal.store import checkpoint, policy_store
from shoal.store import folder as runs
from shoal.store.summary import Result

PAGE = PAGES / "logging.md"
TINY: dict[str, Any] = {
    "games": 4,
    "window": 5,
    "hidden": 4,
    "layers": 1,
    "minibatches": 1,
    "eval_episodes": 3,
}
TINY |= {"steps": 400, "evaluations": 3, "save_every": 100, "keep": 9, "quiet": True, "lr": 0.05}


def run(out: Path, name: str, **options: Any) -> Result:
    return shoal.train("ppo", "test/mortal", **(TINY | {"out": str(out), "name": name} | options))


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in (path / runs.METRICS).read_text().splitlines()]


def weights(path: Path) -> tuple[bytes, ...]:
    return tuple((path / place / policy_store.WEIGHTS).read_bytes() for place in ("policy", "best"))


class Witness(Callback):
    """Notes all it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, int, Any]] = []

    def on_iteration(self, run: LiveRun, values: dict[str, float]) -> None:
        self.told.append(("iteration", run.steps, values))

    def on_evaluation(self, run: LiveRun, played: Evaluated) -> None:
        same = run.player().evaluate(3, seed=0).score() == played.score()
        self.told.append(("evaluation", run.steps, (same, played.values, played.best)))

    def on_checkpoint(self, run: LiveRun, path: Path) -> None:
        self.told.append(("checkpoint", run.steps, checkpoint.opened(path)[0]["steps"]))

    def on_end(self, run: LiveRun, result: Result) -> None:
        self.told.append(("end", run.steps, (result, (run.path / runs.SUMMARY).exists())))

    def close(self) -> None:
        self.told.append(("close", 0, None))

    def of(self, hook: str) -> list[tuple[int, Any]]:
        return [(step, about) for name, step, about in self.told if name == hook]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Witness]:
    witness = Witness()
    return run(tmp_path_factory.mktemp("runs"), "whole", callbacks=[witness]), witness


def test_hooks_are_called_in_time_and_with_what_is_true_then(whole: tuple[Result, Witness]):
    result, witness = whole
    logged = [line for line in lines(result.path) if "steps_per_second" in line]
    assert [{"env_step": step} | values for step, values in witness.of("iteration")] == logged
    evaluations = witness.of("evaluation")
    assert evaluations[0][0] == 0 and evaluations[-1][0] == result.steps and len(evaluations) == 5
    assert all(same for _, (same, _, _) in evaluations)  # the policies of that very moment
    looks = [line for line in lines(result.path) if "evaluation/length" in line]
    assert [{"env_step": step} | values for step, (_, values, _) in evaluations] == looks
    assert result.best and result.best.steps == max(
        step for step, (_, _, best) in evaluations if best
    )
    written = [steps for _, steps in witness.of("checkpoint")]
    assert (
        written == [int(place.name) for place in checkpoint.places(result.path)][::-1]
        and written[-1] == result.steps
    )
    ((steps, (told, last)),) = witness.of("end")
    assert steps == result.steps and last
    assert dataclasses.asdict(told) == dataclasses.asdict(result)
    assert [hook for hook, *_ in witness.told[-2:]] == ["end", "close"]


class Clumsy(Callback):
    """Raises at one hook, once so many steps are done."""

    def __init__(self, hook: str, steps: int = 0):
        self.steps = steps
        setattr(self, hook, self._fall)

    def _fall(self, run: LiveRun, about: Any) -> None:
        if run.steps >= self.steps:
            raise ZeroDivisionError("oh no")


@pytest.mark.parametrize(
    ("hook", "steps"), [("on_iteration", 200), ("on_evaluation", 0), ("on_checkpoint", 150)]
)
def test_a_callback_that_raises_does_not_lose_the_run(
    hook: str, steps: int, whole: tuple[Result, Witness], tmp_path: Path
):
    with pytest.raises(
        Failed,
        match=rf"Clumsy\.{hook}, called at step .* raised"
        rf" ZeroDivisionError: oh no",
    ) as told:
        run(tmp_path, "cut", callbacks=[Clumsy(hook, steps)])
    assert told.value.exit_code == 1 and 'raise ZeroDivisionError("oh no")' in told.value.detail
    path = tmp_path / "cut"
    saved = shoal.load(path).steps
    assert steps <= saved < 400 and saved == int(next(checkpoint.places(path)).name)
    result = shoal.resume(path, quiet=True)
    assert weights(path) == weights(whole[0].path)
    assert (result.scores, result.best, result.before) == (
        whole[0].scores,
        whole[0].best,
        whole[0].before,
    )


def test_a_callback_that_raises_at_the_end_finds_all_written(tmp_path: Path):
    with pytest.raises(Failed, match=r"on_end.*what was trained is saved in .*late"):
        run(tmp_path, "late", callbacks=[Clumsy("on_end")])
    assert (tmp_path / "late" / runs.SUMMARY).exists()


def test_a_callback_may_stop_the_run_which_can_go_on(whole: tuple[Result, Witness], tmp_path: Path):
    class Enough(Callback):
        def on_evaluation(self, run: LiveRun, played: Any) -> None:
            if run.steps:
                run.stop()

    class Outdated(Callback):
        def on_iteration(self, run: LiveRun, values: dict[str, float]) -> None:
            assert not (run.path / "policy").exists() and not (run.path / runs.SUMMARY).exists()

    result = run(tmp_path, "enough", callbacks=[Enough()])
    assert result.stopped and 0 < result.steps < 200
    assert shoal.load(result.path).evaluate(3, seed=0).score() == result.scores
    evaluated = [line["env_step"] for line in lines(result.path) if "evaluation/length" in line]
    assert evaluated == [0, result.steps]  # the last is not played twice
    with pytest.raises(ShoalError, match=r"never overwritten.*or go on with shoal resume .*enough"):
        run(tmp_path, "enough")
    shoal.resume(result.path, quiet=True, callbacks=[Outdated()])
    assert weights(result.path) == weights(whole[0].path)


@pytest.mark.parametrize("wrong", [print, [print], [3]])
def test_what_is_no_list_of_callbacks_is_refused(wrong: Any, tmp_path: Path):
    with pytest.raises(
        ShoalError,
        match=r"callbacks must be a list of objects .*:"
        r" callbacks=\[Mine\(\)\]",
    ):
        run(tmp_path, "wrong", callbacks=wrong)
    assert not list(tmp_path.iterdir())


# -- the best policy -------------------------------------------------------------------------------


def test_the_best_policy_is_that_of_the_highest_evaluation(whole: tuple[Result, Witness]):
    path, best = whole[0].path, whole[0].best
    scores = {
        line["env_step"]: line["evaluation/agent/return"]
        for line in lines(path)
        if "evaluation/length" in line
    }
    assert best and best.score == max(scores.values()) and scores[best.steps] == best.score
    # the first of equals
    assert best.steps == min(step for step, score in scores.items() if score == best.score)
    assert policy_store.best_of(path) == best
    assert json.loads((path / runs.SUMMARY).read_text())["best"] == best._asdict()
    assert len(set(scores.values())) > 1


def test_trap_27_a_best_policy_of_the_lost_future_is_not_kept(
    whole: tuple[Result, Witness], tmp_path: Path
):
    """Resumed from a checkpoint before the best evaluation: first the best of then, in the end the
    same."""
    path = tmp_path / "cut"
    shutil.copytree(whole[0].path, path)
    (path / runs.SUMMARY).unlink()
    oldest = list(checkpoint.places(path))[-1]
    for place in checkpoint.places(path):
        if place != oldest:
            shutil.rmtree(place)
    shutil.rmtree(path / "policy")
    assert policy_store.best_of(path) == whole[0].best != checkpoint.opened(oldest)[0]["best"]

    class Look(Callback):
        def on_iteration(self, run: LiveRun, values: dict[str, float]) -> None:
            self.best = getattr(self, "best", policy_store.best_of(run.path))

    look = Look()
    shoal.resume(path, quiet=True, callbacks=[look])
    assert look.best and look.best.steps == 0  # the oldest checkpoint's
    assert weights(path) == weights(whole[0].path) and policy_store.best_of(path) == whole[0].best


@pytest.mark.slow
def test_who_decides_which_policy_is_best(tmp_path: Path):
    """The first team that learns, or the one that was named."""
    sizes: dict[str, Any] = {
        "steps": 100,
        "games": 2,
        "window": 5,
        "eval_episodes": 1,
        "evaluations": 0,
        "devices": 1,
    }
    sides = {"even": ("random", {}), "odd": ("a2c", {"hidden": 4})}
    for named, team in (("", "odd"), ("even", "even")):
        settings = sizes | {"out": str(tmp_path), "name": f"by-{team}", "best": named}
        result = train(Config.build("matrix/matching_pennies", sides, {}, settings), quiet=True)
        assert result.best and result.best.team == team
    with pytest.raises(
        ShoalError, match="best must be a team of matrix/matching_pennies, not 'third'"
    ):
        Config.build("matrix/matching_pennies", sides, {}, sizes | {"best": "third"})


# -- names -----------------------------------------------------------------------------------------


def documented() -> set[str]:
    """The names in the first column of the page's tables, without the `best` of a run and other
    files."""
    text = PAGE.read_text().partition("## Metric names")[2].partition("\n## ")[0]
    return {
        name
        for row in re.findall(r"^\| (`.*?) \|", text, re.M)
        for name in re.findall(r"`([^`]+)`", row)
    }


def general(name: str, teams: dict[str, Any]) -> str:
    """`agent/agent_0/return` -> `<team>/<agent>/return`."""
    for team, spec in teams.items():
        name = re.sub(rf"(^|/){team}/", r"\1<team>/", name)
        for agent in spec.agents:
            name = name.replace(f"/{agent}/", "/<agent>/")
    return name


def learnt(env: Env, names: dict[str, str]) -> set[str]:
    """The names of the metrics of algorithms by team; nothing is compiled."""
    own = {name: SMALL if name in LEARNERS else {} for name in names.values()}
    own |= {name: SMALL | OFF for name in own if name in REPLAYED}
    players = {team: build(name, env, team, **own[name]) for team, name in names.items()}
    for team, player in players.items():
        player.join(team, players, 4, None)
    loop, rng = Loop(env, players, games=4, window=10, steps=1000), np.random.default_rng(0)
    state = jax.eval_shape(
        loop._open_all, {team: p.init(rng) for team, p in players.items()}, jax.random.key(0)
    )
    metrics = jax.eval_shape(
        on_devices(lambda state: loop.iteration(without_device_axis(state), None)[1]), state
    )
    return {f"<team>/{name}" for team in players for name in metrics.learning[team]}


@pytest.mark.slow
@with_pages
def test_every_metric_is_documented_and_every_documented_one_is_there(
    whole: tuple[Result, Witness],
):
    names = learnt(make("matrix/matching_pennies"), {"even": "a2c", "odd": "past"})
    for algorithm in LEARNERS:
        env = make("test/continuous_identity") if algorithm in PATHWISE else mortal()
        names |= learnt(env, {TEAM: algorithm})
    for line in lines(whole[0].path):
        names |= {general(name, make("test/mortal").teams) for name in line}
    names |= {"faults", "dropped"}  # only if an environment on the host breaks
    names |= {"score/<team>"}  # to trackers alone
    curious = ("curiosity_bonus", "curiosity_loss", "curiosity_weight")
    names |= {f"<team>/{name}" for name in curious}  # only with --curiosity
    names |= {"<team>/reward_unit"}  # only with --normalise-reward
    # only of an environment that says something of its episodes
    names |= {"episode/<metric>", "evaluation/episode/<metric>"}
    assert names == documented()


def test_each_agents_return_is_told_and_a_large_teams_is_not(tmp_path: Path):
    """Agents of the identity game earn unlike; the team's return is their mean, in training and in
    evaluations."""
    teams, settings = (
        {"agent": ("random", {})},
        {"steps": 100, "games": 2, "window": 5, "evaluations": 0, "devices": 1},
    )
    for n, named in ((3, True), (17, False)):
        settings |= {"out": str(tmp_path), "name": str(n), "eval_episodes": 2}
        logged = lines(
            train(Config.build("test/identity", teams, {"n": n}, settings), quiet=True).path
        )
        for mean in ("agent/return", "evaluation/agent/return"):
            rows = [line for line in logged if mean in line]
            assert (
                rows
                and all(mean.replace("return", "agent_0/return") in row for row in rows) is named
            )
            if named:
                each = np.array(
                    [
                        [row[mean.replace("return", f"agent_{i}/return")] for i in range(n)]
                        for row in rows
                    ]
                )
                np.testing.assert_allclose(each.mean(1), [row[mean] for row in rows], rtol=1e-5)
                assert (each[:, 0] != each[:, 1]).any()


# -- sinks -----------------------------------------------------------------------------------------


def test_a_video_is_in_the_tensorboard_events(tmp_path: Path):
    from PIL import Image, ImageSequence

    frames = np.zeros((5, 12, 16, 3), np.uint8)
    frames[range(5), :, range(0, 15, 3)] = 255
    with Log(tmp_path) as log:
        log.video("evaluation/film", frames, fps=10, step=7)
    (events,) = (tmp_path / "tensorboard").iterdir()
    blob = events.read_bytes()
    assert b"evaluation/film" in blob
    film = Image.open(io.BytesIO(blob[blob.index(b"GIF89a") :]))
    assert film.size == (16, 12) and film.info["duration"] == 100
    shown = [np.asarray(frame.convert("RGB")) for frame in ImageSequence.Iterator(film)]
    np.testing.assert_array_equal(shown, frames)


@pytest.mark.slow
@pytest.mark.parametrize("word", ["wandb", "mlflow"])
def test_a_tracker_that_is_not_installed_is_asked_for_in_a_sentence(word: str, tmp_path: Path):
    program = (
        f"import sys; sys.modules[{word!r}] = None; from shoal.cli.main import main;"
        f" sys.exit(main())"
    )
    args = ["train", "ppo", "test/identity", "--track", word, "--out", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", program, *args], capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 2 and not list(tmp_path.iterdir())
    assert (
        done.stderr == f"shoal: the package {word} is not installed: pip install 'shoal[{word}]'\n"
    )
    with pytest.raises(ShoalError, match=r"<module>:<class>, not 'wandbb' \(did you mean 'wandb'"):
        Config.build("test/identity", {"agent": ("random", {})}, {}, {"track": "wandbb"})


def tracked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str) -> Result:
    """A run that a callback breaks off, resumed: each tracker must go on with the one run it had
    begun."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Failed, match="Clumsy"):
        run(
            tmp_path,
            "tracked",
            track=word,
            project="tests",
            callbacks=[Clumsy("on_iteration", 200)],
        )
    return shoal.resume(tmp_path / "tracked", quiet=True)


@pytest.mark.slow
def test_weights_and_biases_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    result = tracked(tmp_path, monkeypatch, "wandb")
    id_ = json.loads((result.path / trackers.IDS).read_text())["wandb"]
    folders = sorted((result.path / "wandb").glob("offline-run-*"))
    assert len(folders) == 2 and all(folder.name.endswith(id_) for folder in folders)
    for _ in range(50):  # another process writes the last records
        history, exits = wandb_history(folders, id_)
        if len(exits) == 2:
            break
        time.sleep(0.2)
    assert exits == [1, 0]  # broken off, then ended
    for line in lines(result.path):
        mine = [row for row in history if row.get("env_step") == line["env_step"]]
        assert any(all(row.get(name) == value for name, value in line.items()) for row in mine), (
            line
        )
    assert any(name.startswith("curve/") for row in history for name in row)
    assert any(row.get("score/agent") == result.scores["agent"] for row in history)


def wandb_history(folders: list[Path], id_: str) -> tuple[list[dict[str, Any]], list[int]]:
    """Logged values and exit codes of tracked runs."""
    history: list[dict[str, Any]] = []
    exits: list[int] = []
    for folder in folders:
        for record in wandb_records(folder / f"run-{id_}.wandb"):
            if record.HasField("history"):
                items = {
                    "/".join(item.nested_key) or item.key: item.value_json
                    for item in record.history.item
                }
                history.append({name: json.loads(value) for name, value in items.items()})
            if record.HasField("exit"):
                exits.append(record.exit.exit_code)
    return history, exits


def wandb_records(path: Path) -> list[Any]:
    """Of the file that `wandb sync` reads: a LevelDB log behind 7 bytes, its records cut at blocks
    of 32 kB."""
    from wandb.proto import wandb_internal_pb2

    blob, at, whole, records = path.read_bytes(), 7, b"", []
    while at + 7 <= len(blob):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        size, kind = struct.unpack("<HB", blob[at + 4 : at + 7])
        whole, at = whole + blob[at + 7 : at + 7 + size], at + 7 + size
        if kind in (1, 4):  # whole, or the last part of it
            records.append(wandb_internal_pb2.Record())
            records[-1].ParseFromString(whole)
            whole = b""
    return records


@pytest.mark.slow
def test_mlflow_with_a_local_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    result = tracked(tmp_path, monkeypatch, "mlflow")
    from mlflow import MlflowClient

    client = MlflowClient()
    experiment = client.get_experiment_by_name("tests")
    assert experiment
    (theirs,) = client.search_runs([experiment.experiment_id])
    id_ = theirs.info.run_id
    assert json.loads((result.path / trackers.IDS).read_text())["mlflow"] == id_
    assert theirs.info.status == "FINISHED" and theirs.data.params["settings.steps"] == "400"
    told = {(m.step, m.value) for m in client.get_metric_history(id_, "evaluation/agent/return")}
    assert told == {
        (x["env_step"], x["evaluation/agent/return"])
        for x in lines(result.path)
        if "evaluation/length" in x
    }
    assert theirs.data.metrics["score/agent"] == result.scores["agent"]
    assert {file.path for file in client.list_artifacts(id_)} == {"policy", "best", "curve.png"}


# -- the page --------------------------------------------------------------------------------------


@pytest.mark.slow
@with_pages
def test_the_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    monkeypatch.chdir(tmp_path)
    small = code.replace(
        "steps=200_000", "steps=600, games=4, window=5, eval_episodes=2, hidden=4, minibatches=1"
    )
    assert small != code
    exec(compile(small, PAGE.name, "exec"), {"__name__": "example"})
    assert (tmp_path / "runs").exists() and os.listdir(tmp_path / "pictures")

"""Traps that lie between the parts: what a checkpoint keeps, what a resumed run goes on with, what
evaluations cost.

Others are held shut where the part is tested: the ε of the value family, value statistics, the
evaluators.
"""

from __future__ import annotations

import contextlib
import json
import resource
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from commands import RUNS as RESUMED
from commands import TINY as RESUMED_TINY
from commands import shoal_process
from games import Quadrants
from helpers import (
    LEARNERS,
    OFF,
    PARALLEL,
    POLICY,
    REPLAYED,
    TEAM,
    TINY,
    bits,
    build,
    clock,
    mortal,
)

import shoal
from shoal.config.config import Config
from shoal.engine import evaluate
from shoal.engine.evaluate import Evaluator
from shoal.engine.loop import Loop
from shoal.envs import make
from shoal.monitor.console import Console
from shoal.run.trainer import Trainer
from shoal.store import checkpoint, folder

SMALL: dict[str, Any] = {"games": 4, "window": 10, "steps": 1000, "devices": 2}
SIZES: dict[str, Any] = {
    "games": 4,
    "window": 5,
    "hidden": 4,
    "layers": 1,
    "eval_episodes": 2,
    "quiet": True,
}
REPLAY = ("params/", "target/", "opt/", "updates", "memories/agent/priority", "memories/agent/")
PARTS = {  # of a learner and of a memory: what was forgotten by somebody once
    **dict.fromkeys((*REPLAYED, "images"), REPLAY),
    **dict.fromkeys(POLICY, ("params/", "opt/", "scale/mean", "scale/variance", "scale/windows")),
    **dict.fromkeys(PARALLEL, ("params/", "opt/")),
    "self-play": ("odd/selves/", "odd/record"),
}


def the_loop(name: str) -> Loop:
    """One of every kind of thing that is kept: recurrence, last actions, priorities, two
    devices."""
    env = Quadrants() if name == "images" else mortal()
    own = OFF | {"priority": 0.6} if name in (*REPLAYED, "images") else {}
    algorithm = build(
        "dqn" if name == "images" else name, env, torso="gru", last_action=True, **TINY, **own
    )
    return Loop(env, {TEAM: algorithm}, **SMALL)


def self_play() -> Loop:
    """A learner and a pool of its past selves."""
    sides = {
        "even": ("ppo", {"hidden": 4, "minibatches": 1}),
        "odd": ("past", {"groups": 2, "pool": 3}),
    }
    config = Config.build("matrix/matching_pennies", sides, {}, SMALL)
    return Loop(config.game, config.algorithms, **SMALL)


def anything(like: Any, seed: int = 0) -> Any:
    """A state of that form, every leaf full of chance."""
    rng = np.random.default_rng(seed)

    def leaf(one: Any) -> np.ndarray:
        if np.issubdtype(one.dtype, np.floating):
            return rng.standard_normal(one.shape).astype(one.dtype)
        return rng.integers(0, 2 if one.dtype == bool else 200, one.shape).astype(one.dtype)

    return jax.tree.map(leaf, like)


ABOUT: Any = {"steps": 7, "seconds": 0.0, "logs": {}}  # as far as reading a checkpoint needs it


def saved_and_read(state: Any, like: Any, run: Path) -> Any:
    with contextlib.closing(checkpoint.CheckpointWriter(run, keep=1)) as keeper:
        keeper.save(state, ABOUT)
    return checkpoint.read(next(checkpoint.places(run)), like)[0]


@pytest.mark.parametrize("name", [*LEARNERS, "images", "self-play"])
def test_trap_24_27_every_leaf_survives_a_checkpoint(name: str, tmp_path: Path) -> None:
    """Replay, priorities, targets, optimisers, normalisers, counters, keys and games: value, shape
    and type."""
    loop = self_play() if name == "self-play" else the_loop(name)
    like = loop.template(0)
    names = folder.leaves_by_name(like)
    assert len(names) == len(jax.tree.leaves(like))  # no leaf has another's name
    for part in PARTS[name]:
        assert any(part in one for one in names), part
    assert {np.dtype(bool), np.dtype(np.uint32)} <= {leaf.dtype for leaf in names.values()}
    assert name != "images" or np.dtype(np.uint8) in {leaf.dtype for leaf in names.values()}
    state = anything(like)
    back = saved_and_read(state, like, tmp_path)
    for place, ours in folder.leaves_by_name(state).items():
        theirs = folder.leaves_by_name(back)[place]
        assert (ours.dtype, ours.shape, ours.tobytes()) == (
            theirs.dtype,
            theirs.shape,
            theirs.tobytes(),
        ), place


def test_trap_38_a_checkpoint_of_0_1_0_is_read_with_the_variance_of_its_returns(
    tmp_path: Path,
) -> None:
    """It kept their mean square instead."""
    like = the_loop("ppo").template(0)
    leaves = {name: np.array(leaf) for name, leaf in folder.leaves_by_name(anything(like)).items()}
    stem = f"learners/{TEAM}/scale/"
    old = leaves | {f"{stem}mean": np.float32(3.0), f"{stem}square": np.float32(13.0)}
    del old[f"{stem}variance"]
    place = checkpoint.write(
        tmp_path, {name: np.array(leaf) for name, leaf in old.items()}, ABOUT, keep=1
    )
    back = folder.leaves_by_name(checkpoint.read(place, like)[0])
    assert (back[f"{stem}mean"], back[f"{stem}variance"]) == (3.0, 4.0)
    assert all(
        back[name].tobytes() == leaf.tobytes() for name, leaf in leaves.items() if stem not in name
    )


@pytest.mark.parametrize("name", [*LEARNERS, "self-play"])
def test_trap_27_no_leaf_is_weakly_typed(name: str) -> None:
    """A file cannot say so: such a leaf would come back as another type to the compiler, and
    promote otherwise."""
    like = (self_play() if name == "self-play" else the_loop(name)).template(0)
    assert [place for place, leaf in folder.leaves_by_name(like).items() if leaf.weak_type] == []


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_trap_27_a_restored_state_is_to_the_program_as_a_new_one(name: str) -> None:
    loop = the_loop(name)
    fresh, back = loop.init(0), loop.restored(anything(loop.template(0)))
    for ours, theirs in zip(jax.tree.leaves(fresh), jax.tree.leaves(back), strict=True):
        assert (ours.aval, ours.sharding) == (theirs.aval, theirs.sharding)


# -- resuming --------------------------------------------------------------------------------------


def logged(run: Path, *names: str) -> list[tuple]:
    lines = [json.loads(line) for line in (run / folder.METRICS).read_text().splitlines()]
    return [
        tuple(line[name] for name in ("env_step", *names))
        for line in lines
        if set(names) <= set(line)
    ]


def state_of(run: Path) -> list[bytes]:
    loop = Trainer(folder.config_of(run), Console(quiet=True)).loop
    return bits(checkpoint.newest(run, loop.template(0))[0])


@pytest.fixture(scope="module")
def value_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    own: dict[str, Any] = {
        "warmup": 20,
        "capacity": 200,
        "batch": 4,
        "length": 4,
        "updates": 1,
        "epsilon_steps": 300,
    }
    out = str(tmp_path_factory.mktemp("runs"))
    how = {
        "steps": 400,
        "save_every": 100,
        "keep": 9,
        "evaluations": 1,
        "out": out,
        "name": "value",
        "seed": 1,
    }
    return shoal.train("dqn", "test/mortal", **(SIZES | own | how)).path


@pytest.mark.slow
def test_trap_19_epsilon_goes_on_where_it_was_after_a_resume(
    value_run: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(value_run, run)
    (run / folder.SUMMARY).unlink()
    *newer, at, _ = checkpoint.places(run)  # the last is that of the beginning
    for one in newer:
        shutil.rmtree(one)
    shoal.resume(run, quiet=True)
    told = logged(run, "agent/epsilon")
    assert told == logged(value_run, "agent/epsilon") and state_of(run) == state_of(value_run)
    after = [epsilon for step, epsilon in told if step > int(at.name)]
    before = [epsilon for step, epsilon in told if step <= int(at.name)]
    # it falls on, and does not begin again
    assert len(after) > 3 and before and max(after) < min(before) < 1.0


@pytest.mark.slow
def test_trap_27_a_disk_that_fills_up_in_mid_run_loses_nothing(tmp_path: Path) -> None:
    """From some moment on no file may grow beyond 20 kB, not even a log: the run ends with a
    sentence, then goes on."""
    words = f"{RESUMED['dqn']} {RESUMED_TINY} --out {tmp_path}"
    assert shoal_process(f"train {words} --name whole", tmp_path).wait(300) == 0
    run, log = tmp_path / "run", tmp_path / "log"
    process = shoal_process(f"train {words} --name run", tmp_path)
    while len(list(checkpoint.places(run))) < 2:
        assert process.poll() is None, log.read_text()
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (20_000, 20_000))
    assert process.wait(300) in (1, 2)
    assert (
        log.read_text().splitlines()[-1].startswith("shoal: ")
        and "Traceback" not in log.read_text()
    )
    assert shoal_process(f"resume {run}", tmp_path).wait(300) == 0, log.read_text()
    assert state_of(run) == state_of(tmp_path / "whole")
    assert (run / folder.EPISODES).read_text() == (tmp_path / "whole" / folder.EPISODES).read_text()


def test_trap_19_25_a_run_says_whether_its_evaluations_explore(
    value_run: Path, tmp_path: Path
) -> None:
    told = json.loads((value_run / folder.CONFIG).read_text())["protocol"]["evaluation"]
    assert told == {"actions": "greedy", "episodes": 2, "exploration": "none"}
    sampled = Config.build("test/mortal", {TEAM: ("dqn", {})}, {}, {"greedy": False})
    assert (
        folder.protocol(sampled)["evaluation"]["exploration"]
        == "as in training after as many steps"
    )


# -- evaluating ------------------------------------------------------------------------------------


def test_trap_25_evaluations_change_nothing_that_is_trained(
    value_run: Path, tmp_path: Path
) -> None:
    """Neither the steps that are counted, nor a bit of the state: they have games and keys of their
    own."""
    settings = json.loads((value_run / folder.CONFIG).read_text())
    settings["settings"] |= {"evaluations": 6, "out": str(tmp_path), "eval_episodes": 3}
    run = Trainer(Config.from_json(settings), Console(quiet=True)).run().path
    assert len(logged(run, "evaluation/length")) > len(logged(value_run, "evaluation/length"))
    assert logged(run, "agent/updates") == logged(value_run, "agent/updates")
    assert state_of(run) == state_of(value_run)


def test_trap_25_every_row_is_a_whole_episode_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where episodes do not fill the last round: none is a zero, a part, or played twice."""
    monkeypatch.setattr(evaluate, "AT_ONCE", 4)
    endless = make("test/endless", length=7)
    rows = Evaluator(endless, {TEAM: build("random", endless)}, episodes=10, greedy=False)(
        {TEAM: ()}, 0, clock()
    )
    assert rows.length.tolist() == [7] * 10 and rows.returns[TEAM].shape == (
        10,
        endless.teams[TEAM].n,
    )
    np.testing.assert_array_equal(rows.returns[TEAM], 7.0)
    cues = make("test/continuous_identity", n=1, length=5)
    rows = Evaluator(cues, {TEAM: build("random", cues)}, episodes=10, greedy=False)(
        {TEAM: ()}, 0, clock()
    )
    assert len(np.unique(rows.returns[TEAM])) == 10

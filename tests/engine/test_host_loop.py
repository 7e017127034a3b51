"""The host engine: the same learning as the compiled one, whoever steps the games; broken episodes
leave no trace."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import jax
import numpy as np
import pytest
from brittle import LENGTH, fate
from helpers import OFF, TEAM, TINY, assert_close, bits, build, clock, mortal
from jax import Array
from places import SUPPORT
from stages import AtOnce

import shoal
from shoal.algorithms import random_policy
from shoal.engine.evaluate import evaluator
from shoal.engine.host_loop import HostLoop
from shoal.engine.loop import Loop
from shoal.engine.stage import Stage
from shoal.envs import make
from shoal.envs.host.arena import Arena
from shoal.envs.host.faults import Fault
from shoal.envs.host.parts import ALL, HALVES
from shoal.envs.host.table import seed_of
from shoal.errors import ShoalError
from shoal.types import View


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The game that breaks can be found by its id."""
    monkeypatch.syspath_prepend(str(SUPPORT))


def children(pid: int) -> list[str]:
    """Processes that a process has started and that are there."""
    found: list[str] = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        # a thread that ended meanwhile
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found += (task / "children").read_text().split()
    return found


def until(true: Callable[[], bool], seconds: float = 100.0) -> None:
    """Wait for it."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def descriptors() -> int:
    """Open files, shared memory among them."""
    return len(os.listdir("/proc/self/fd"))


class Outside(AtOnce):
    """A native game that is stepped from outside."""

    def __init__(self, game: Any, games: int, devices: int):
        self.game, self.games, self.devices = game, games, devices
        self.advance = jax.jit(jax.vmap(game.step))

    def open(self, keys: Array) -> tuple[dict[str, View], list[Fault]]:
        self.state, views = jax.vmap(lambda key: self.game.reset(key, self.games // self.devices))(
            keys
        )
        return self._all(views), []

    def step(
        self, keys: np.ndarray, t: int, actions: dict
    ) -> tuple[dict[str, View], np.ndarray, list[Fault]]:
        shares = {
            team: action.reshape(self.devices, -1, *action.shape[1:])
            for team, action in actions.items()
        }
        self.state, views = self.advance(
            jax.random.wrap_key_data(keys[:, t, 0]), self.state, shares
        )
        return self._all(views), np.zeros(self.games, bool), []

    def _all(self, views: Any) -> Any:
        return jax.tree.map(lambda x: np.asarray(x).reshape(self.games, *x.shape[2:]), views)

    def episodes(self) -> np.ndarray:
        return np.zeros(self.games, np.uint32)

    def close(self) -> None:
        pass


class OutsideLoop(HostLoop):
    """The host engine on a native game."""

    def stage(self, seed: int) -> Stage:
        return Outside(self.env, self.games, self.devices)


@pytest.mark.parametrize(
    ("name", "own", "devices"),
    [
        ("ppo", {"torso": "gru"}, 1),
        ("ppo", {"torso": "gru", "minibatches": 2}, 2),
        ("qmix", OFF | {"last_action": True}, 2),
        ("maddpg", OFF, 1),
    ],
)
def test_trap_30_compiled_and_host_engine_learn_the_same(
    name: str, own: dict, devices: int
) -> None:
    """Same game, same keys: float precision apart after several iterations over episode ends and
    deaths."""
    env = mortal()
    algorithm = build(name, env, **TINY, **own)
    sizes = (env, {TEAM: algorithm}, 4, 5, 1000, devices)
    compiled, hosted = Loop(*sizes), OutsideLoop(*sizes)
    a, b = compiled.init(3), hosted.init(3)
    ours, theirs = compiled.compile(a, 4)(a), hosted.compile(b, 4)(b)
    assert_close(jax.device_get(ours[0].learners), jax.device_get(theirs[0].learners), 2e-4)
    assert_close(jax.device_get(ours[0].memories), jax.device_get(theirs[0].memories), 2e-4)
    assert_close(ours[1], theirs[1], 2e-3)
    assert int(ours[0].steps) == int(theirs[0].steps) > 0


def brittle_loop(
    games: int,
    workers: int,
    window: int = 40,
    tolerance: int = 10**6,
    halves: bool | None = None,
    **shares: float,
) -> HostLoop:
    """Somebody who plays at random on the game that breaks."""
    env = make("brittle:make", **shares)
    return HostLoop(
        env,
        {TEAM: random_policy(env.teams[TEAM])},
        games,
        window,
        10**6,
        1,
        workers,
        1.0,
        tolerance,
        halves=halves,
    )


def expected(
    game: int, seed: int, steps: int, shares: dict[str, float]
) -> tuple[int, int, int, int]:
    """Of one game alone in its process, in plain Python: steps kept, episodes kept and dropped,
    faults."""
    episode, kept, ended, dropped, faults, opened_at = 0, 0, 0, 0, 0, 0
    at, how, breaks = 0, "", 0  # step of the episode, its fate, the step it breaks at

    def open_one() -> None:
        nonlocal episode, at, how, breaks, faults
        while True:
            episode, at = episode + 1, 0
            how, breaks = fate(seed_of(seed, game, episode), shares)
            if how != "reset":
                return
            faults += 1

    open_one()
    for step in range(steps):
        if at == LENGTH:
            open_one()
            ended, opened_at = ended + 1, step + 1
            continue
        at += 1
        if how != "well" and at == breaks:
            faults, dropped, kept = faults + 1, dropped + 1, kept - (step - opened_at)
            open_one()
            opened_at = step + 1
            continue
        kept += 1
    return kept, ended, dropped, faults


@pytest.mark.parametrize(
    ("window", "least"), [(300, 100), pytest.param(2400, 1000, marks=pytest.mark.slow)]
)
def test_trap_28_many_faults_leave_exact_counts_and_nothing_behind(
    window: int, least: int, here: None
) -> None:
    """Environments that raise, return NaN or a wrong shape, cannot be reset, hang or are killed,
    all in one run."""
    shares = {
        "raises": 0.3,
        "nan": 0.2,
        "shape": 0.2,
        "reset": 0.05,
        "illegal": 0.1,
        "hangs": 0.004,
        "killed": 0.02,
    }
    before = len(children(os.getpid())), descriptors()
    loop = brittle_loop(2, 2, window=window, **shares)
    with contextlib.closing(loop):
        state = loop.init(5)
        state, metrics = loop.compile(state, 1)(state)
    rows = [expected(game, 5, window, shares) for game in range(2)]
    kept, ended, dropped, faults = (sum(column) for column in zip(*rows, strict=True))
    assert len(loop.faults) == faults > least
    for kind in (
        "fell over",
        "not finite",
        "shape",
        "be reset",
        "no legal",
        "not answer",
        "SIGKILL",
    ):
        assert any(kind in fault.report for fault in loop.faults), kind
    assert len(loop.dropped) == dropped
    assert int(metrics.episodes.sum()) == ended
    assert float(metrics.returns[TEAM].sum()) == ended * LENGTH  # a broken episode earns nothing
    assert int(state.steps) == kept
    assert (len(children(os.getpid())), descriptors()) == before


@pytest.mark.slow
def test_equal_seeds_give_equal_runs_whatever_the_number_of_workers() -> None:
    """In this process, in one other, in two that share five games unevenly, all games at once or by
    halves: the same to the bit, also what policies remember."""
    env = make("gym:CartPole-v1")
    ends = []
    for workers, halves in ((0, True), (1, False), (1, True), (2, True)):
        algorithm = build("ppo", env, minibatches=1, torso="gru", **TINY)
        loop = HostLoop(env, {TEAM: algorithm}, 5, 20, 1000, 1, workers, halves=halves)
        with contextlib.closing(loop):
            state = loop.init(1)
            assert loop.opened and (HALVES[0] in loop.opened.rows) == (workers > 0)
            state, metrics = loop.compile(state, 2)(state)
        ends.append(bits((state, metrics)))
    assert ends[0] == ends[1] == ends[2] == ends[3]


def test_games_step_by_halves_where_that_takes_longer_than_acting() -> None:
    """The first window finds out."""

    class Slow(Outside):
        rows = {ALL: slice(None)} | dict(zip(HALVES, ([0, 1], [2, 3]), strict=True))
        waited: ClassVar[list[int]] = []

        def wait(self, part: int) -> Any:
            self.waited.append(part)
            time.sleep(0.05)
            return super().wait(part)

    class SlowLoop(HostLoop):
        def stage(self, seed: int) -> Stage:
            return Slow(self.env, self.games, self.devices)

    env = mortal()
    loop = SlowLoop(env, {TEAM: random_policy(env.teams[TEAM])}, 4, 3, 1000)
    state = loop.init(0)
    loop.compile(state, 2)(state)
    assert Slow.waited == [ALL] * 3 + [*HALVES] * 3


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_fault_in_one_half_leaves_the_other_alone(workers: int, here: None) -> None:
    shares = {"raises": 0.3, "nan": 0.2, "reset": 0.1}
    loop = brittle_loop(5, workers, window=60, halves=True, **shares)
    with contextlib.closing(loop):
        state = loop.init(5)
        state, metrics = loop.compile(state, 1)(state)
    rows = [expected(game, 5, 60, shares) for game in range(5)]
    kept, ended, dropped, faults = (sum(column) for column in zip(*rows, strict=True))
    assert len(loop.faults) == faults > 20 and len(loop.dropped) == dropped
    assert int(metrics.episodes.sum()) == ended and int(state.steps) == kept
    assert float(metrics.returns[TEAM].sum()) == ended * LENGTH


@pytest.mark.slow
def test_by_halves_too_a_lost_process_leaves_whole_episodes(here: None) -> None:
    """Its games all open new episodes: what is kept is of whole episodes, step after step."""
    env = make("brittle:make", killed=0.15)
    algorithm = build("dqn", env, **TINY, **OFF | {"length": 3, "capacity": 400, "warmup": 10**6})
    loop = HostLoop(env, {TEAM: algorithm}, 4, 50, 1000, 1, 1, tolerance=10**6, halves=True)
    with contextlib.closing(loop):
        state = loop.init(5)
        state, metrics = loop.compile(state, 1)(state)
    assert len(loop.faults) > 3 and set(loop.dropped) == {0, 1, 2, 3}
    assert float(metrics.returns[TEAM].sum()) == LENGTH * float(metrics.episodes.sum()) > 0
    memory = jax.tree.map(lambda x: np.asarray(x)[0], state.memories[TEAM])
    drawn = memory.draw(jax.random.key(0), 400, 3, False).window.view
    steps, first = np.asarray(drawn.obs)[..., 0, 0], np.asarray(drawn.first)
    assert (first[1:] | (steps[1:] == steps[:-1] + 1)).all()


def test_past_its_tolerance_a_run_stops_with_the_report_and_what_it_had(
    tmp_path: Path, here: None
) -> None:
    with pytest.raises(
        ShoalError, match=r"broke 4 times.*tolerance.*game \d.*seed \d+, step \d"
    ) as caught:
        options = {
            "steps": 400,
            "games": 2,
            "window": 10,
            "tolerance": 3,
            "workers": 0,
            "eval_episodes": 1,
        }
        shares = {"raises": 0.3}
        shoal.train(
            "ppo",
            "brittle:make",
            env=shares,
            out=str(tmp_path),
            name="run",
            quiet=True,
            **options,
            **TINY,
        )
    assert caught.value.exit_code == 1 and "the environment fell over" in caught.value.detail
    assert len((tmp_path / "run" / "faults.jsonl").read_text().splitlines()) == 4
    assert (tmp_path / "run" / "policy" / "weights.safetensors").is_file()


def test_an_evaluation_has_the_tolerance_of_its_run(tmp_path: Path, here: None) -> None:
    with pytest.raises(
        ShoalError,
        match=r"broke 4 times in an evaluation, more than its"
        r" tolerance of 3; the last",
    ):
        options = {
            "steps": 400,
            "games": 2,
            "window": 10,
            "tolerance": 3,
            "workers": 0,
            "eval_episodes": 40,
        }
        shoal.train(
            "ppo",
            "brittle:make",
            env={"raises": 0.3},
            out=str(tmp_path),
            quiet=True,
            **options,
            **TINY,
        )


def test_what_breaks_in_an_evaluation_is_told_and_the_run_is_saved_first(
    tmp_path: Path, here: None
) -> None:
    """Evaluations of a run open with the same seeds: this game refuses the second one."""
    sizes = {
        "steps": 200,
        "games": 2,
        "window": 10,
        "evaluations": 1,
        "eval_episodes": 1,
        "workers": 0,
    }
    with pytest.raises(
        ShoalError,
        match=r"broke 5 times in a row.*brittle:make, game 0,"
        r" episode 5, seed",
    ) as caught:
        options: dict[str, Any] = (
            sizes | TINY | {"out": str(tmp_path), "name": "run", "quiet": True}
        )
        shoal.train("ppo", "brittle:make", env={"once": True}, **options)
    assert caught.value.exit_code == 1 and "has been here before" in caught.value.detail
    assert (
        100 <= json.loads((tmp_path / "run" / "policy" / "policy.json").read_text())["steps"] < 200
    )


def test_workers_outlive_the_start_of_a_run(tmp_path: Path) -> None:
    """Linux ends a process with the *thread* that started it: none of the first evaluation's is
    found dead later.

    The seed is the largest there is.
    """
    sizes = {
        "steps": 80,
        "games": 2,
        "window": 10,
        "evaluations": 1,
        "eval_episodes": 2,
        "workers": 1,
    }
    options: dict[str, Any] = (
        sizes | TINY | {"out": str(tmp_path), "name": "run", "quiet": True, "minibatches": 1}
    )
    shoal.train("ppo", "gym:CartPole-v1", preset=False, seed=2**32 - 1, **options)
    assert not (tmp_path / "run" / "faults.jsonl").exists()


def test_a_worker_may_take_its_time_with_each_of_its_games(here: None) -> None:
    """Four openings of 0.4 s are more than the patience of 1 s, none of them alone is."""
    with Arena(make("brittle:make", slow=0.4), 4, 0, workers=1, patience=1.0) as arena:
        assert not arena.step()


def test_workers_that_cannot_be_started_leave_nothing_open(
    here: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = make("brittle:make")
    before = env.teams and descriptors()
    monkeypatch.setattr(sys, "executable", "/there/is/no/python")
    with pytest.raises(FileNotFoundError):
        Arena(env, 2, 0, workers=2)
    assert descriptors() == before


def test_what_cannot_be_saved_or_opened_is_said_in_a_sentence(here: None) -> None:
    with pytest.raises(ShoalError, match="options of brittle:make are saved with the run"):
        make("brittle:make", raises=print)
    with pytest.raises(ShoalError, match="brittle:fate cannot be opened: TypeError") as caught:
        assert make("brittle:fate").teams
    assert "Traceback" in caught.value.detail


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "times", "code"),
    [
        (signal.SIGINT, 2, 130),
        (signal.SIGKILL, 1, -9),
        pytest.param(signal.SIGINT, 1, 130, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, 1, 143, marks=pytest.mark.slow),
    ],
)
def test_however_a_run_ends_no_process_stays(
    tmp_path: Path, here: None, number: signal.Signals, times: int, code: int
) -> None:
    """Ctrl-C and SIGTERM save first, a second Ctrl-C ends at once; after kill -9 the workers, one
    of them hung, end by themselves."""
    command = [sys.executable, "-m", "shoal", "train", "ppo", "brittle:make", "--env.hangs", "0.2"]
    sizes = (
        "--steps 1e6 --games 2 --window 10 --workers 2 --patience 30 --eval-episodes 1 --hidden"
        " 8 --name run"
    )
    paths = os.pathsep.join([str(SUPPORT), *sys.path])
    with (tmp_path / "log").open("w") as log:
        run = subprocess.Popen(
            [*command, *sizes.split(), "--out", str(tmp_path)],
            stdout=log,
            env=os.environ | {"PYTHONPATH": paths},
        )
        with contextlib.ExitStack() as leaving:
            leaving.callback(run.kill)
            until(lambda: len(children(run.pid)) >= 2)
            workers = children(run.pid)
            until(lambda: (tmp_path / "run").is_dir())
            for _ in range(times):
                run.send_signal(number)
                time.sleep(0.5)
            assert run.wait(10 if times > 1 else 100) == code
    until(lambda: not any(Path(f"/proc/{worker}").exists() for worker in workers))
    saved = times == 1 and number != signal.SIGKILL
    assert not saved or (tmp_path / "run" / "policy").is_dir()


def test_a_policy_plays_where_its_environment_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.syspath_prepend(str(SUPPORT))
        options = {
            "steps": 40,
            "games": 2,
            "window": 10,
            "minibatches": 1,
            "workers": 0,
            "eval_episodes": 1,
        }
        shoal.train(
            "ppo", "brittle:make", out=str(tmp_path), name="run", quiet=True, **options, **TINY
        )
    monkeypatch.delitem(sys.modules, "brittle")
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path != str(SUPPORT)])
    player = shoal.load(tmp_path / "run", trust=True)
    assert player.act({"agent_0": [0, 0, 0], "agent_1": [1, 1, 1]}).keys() == {"agent_0", "agent_1"}
    with pytest.raises(ShoalError, match="no module 'brittle'"):
        player.evaluate(1)


def test_an_evaluation_plays_each_games_share_whatever_breaks(here: None) -> None:
    """Whole episodes only, in the order of games and rounds, the same for the same seed."""
    env = make("brittle:make", raises=0.3, reset=0.1)
    play = evaluator(env, {TEAM: random_policy(env.teams[TEAM])}, 37, False)
    with contextlib.closing(play):
        first, again = (play({TEAM: ()}, 4, clock()) for _ in range(2))
    assert first.length.tolist() == [LENGTH] * 37 and (first.returns[TEAM] == LENGTH).all()
    assert first.returns[TEAM].shape == (37, 2) and bits(first) == bits(again)
    assert play.faults and all(
        "fell over" in fault.report or "be reset" in fault.report for fault in play.faults
    )


def test_short_episodes_are_not_favoured() -> None:
    """Every game plays its share to the end: CartPole's long episodes count as often as its short
    ones."""
    env = make("gym:CartPole-v1", max_episode_steps=30)
    play = evaluator(env, {TEAM: random_policy(env.teams[TEAM])}, 40, False)
    with contextlib.closing(play):
        played = play({TEAM: ()}, 0, clock())
    assert (played.returns[TEAM][:, 0] == played.length).all() and 10 < played.length.mean() < 30
    assert (played.length == 30).any() and (played.length < 12).any()


@pytest.mark.parametrize("name", ["dqn", "ppo"])
def test_trap_34_a_resume_joins_no_two_episodes(name: str, here: None) -> None:
    """The opening view after it is in the stream as `first`: no drawn window has two episodes as
    one.

    Observations tell the step of the episode. What the cut episode had earned is not counted as a
    return.
    """
    env = make("brittle:make")

    def loop() -> HostLoop:
        own = OFF | {"length": 3} if name == "dqn" else {"minibatches": 1}
        return HostLoop(env, {TEAM: build(name, env, **TINY, **own)}, 2, 4, 1000)

    with contextlib.closing(loop()) as before:
        state = before.init(3)
        state, _ = before.compile(state, 2)(state)
    with contextlib.closing(loop()) as after:
        after.template(3)
        state = after.restored(jax.device_get(state))
        state, metrics = after.compile(state, 4)(state)
    assert float(metrics.returns[TEAM].sum()) == LENGTH * float(metrics.episodes.sum()) > 0
    if name == "ppo":
        return
    memory = jax.tree.map(lambda x: np.asarray(x)[0], state.memories[TEAM])
    drawn = memory.draw(jax.random.key(0), 200, 3, False).window.view
    steps, first = np.asarray(drawn.obs)[..., 0, 0], np.asarray(drawn.first)
    assert (first[1:] | (steps[1:] == steps[:-1] + 1)).all() and (steps[first] == 0).all()
    cut = first[1:] & (steps[:-1] != LENGTH)
    assert cut.any(), "the place where the run was resumed was not drawn"

"""`--staleness 1`: a window is played by the learner of before, while the learner learns."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import TEAM, TINY, bits, build
from jax import Array
from places import SUPPORT
from stages import AtOnce

import shoal
from shoal.algorithms import random_policy
from shoal.algorithms.base import Algorithm
from shoal.config.config import Config
from shoal.engine.host_loop import HostLoop
from shoal.engine.stage import Stage
from shoal.envs import make
from shoal.envs.host.faults import Fault
from shoal.envs.host.watched import Halted
from shoal.envs.native.probes import Identity
from shoal.errors import ShoalError
from shoal.types import Clock, Decision, Share, View, Window

WINDOW = 3
GAMES = 2


class Counter(Algorithm):
    """Its only action is the number of its updates; it keeps those of the windows it learnt
    from."""

    name = "counter"

    def init(self, rng: Any) -> Array:
        return jnp.zeros((), jnp.int32)

    def carry(self, learner: Array, games: int) -> tuple[()]:
        return ()

    def act(
        self, learner: Array, key: Array, view: View, carry: Any, clock: Clock, greedy: bool
    ) -> Decision:
        action = jnp.broadcast_to(learner, view.alive.shape)
        # the clock of the decision is recorded too
        return Decision(action, (), jnp.broadcast_to(clock.steps, view.alive.shape))

    def memory(self, learner: Array, share: Share) -> Array:
        return jnp.zeros((share.window, share.games, 1, 2))

    def remember(self, memory: Array, window: Window) -> Array:
        return jnp.stack([window.action.astype(jnp.float32), window.record], -1)

    def learn(self, learner: Array, memory: Array, key: Array, clock: Clock) -> Any:
        played = memory[0, 0, 0]
        same = (memory == played).all()
        metrics = {"played_by": played[0], "played_at": played[1], "learnt_at": clock.steps}
        return learner + 1, memory, metrics | {"same": same}


class Outside(AtOnce):
    """A native game that is stepped from outside; `breaks` raises in some step."""

    def __init__(self, game: Any, games: int, breaks: Callable[[int], None]):
        self.game = game
        self.games = games
        self.breaks = breaks
        self.stepped = 0
        self.advance = jax.jit(game.step)

    def open(self, keys: Array) -> tuple[dict[str, View], list[Fault]]:
        self.state, views = self.game.reset(keys[0], self.games)
        return jax.device_get(views), []

    def step(self, keys: np.ndarray, t: int, actions: dict) -> tuple:
        self.breaks(self.stepped)
        self.stepped += 1
        key = jax.random.wrap_key_data(keys[0, t, 0])
        self.state, views = self.advance(key, self.state, actions)
        return jax.device_get(views), np.zeros(self.games, bool), []

    def metrics(self) -> dict[str, np.ndarray]:
        return {}

    def episodes(self) -> np.ndarray:
        return np.zeros(self.games, np.uint32)

    def renew(self, episodes: np.ndarray) -> None:
        pass

    def close(self) -> None:
        pass


class OutsideLoop(HostLoop):
    """The host engine on a native game."""

    def stage(self, seed: int) -> Stage:
        return Outside(self.env, self.games, getattr(self, "breaks", lambda step: None))


def counting(steps: int, staleness: int = 1) -> Any:
    env = Identity(n=1, length=100)
    algorithm = Counter(None, env.teams[TEAM])
    return OutsideLoop(env, {TEAM: algorithm}, GAMES, WINDOW, steps, staleness=staleness)


def told(metrics: Any, name: str) -> list[int]:
    return np.asarray(metrics.learning[TEAM][name]).astype(int).tolist()


def test_each_window_is_played_by_the_learner_of_before() -> None:
    size = GAMES * WINDOW
    loop = counting(5 * size)
    state = loop.init(0)
    program = loop.compile(state, 2)
    state, first = program(state)
    state, second = program(state)
    state, third = loop.compile(state, 1)(state)
    metrics = jax.tree.map(lambda *rows: np.concatenate(rows), first, second, third)
    assert told(metrics, "played_by") == [0, 0, 1, 2, 3]  # without: [0, 1, 2, 3, 4]
    assert told(metrics, "played_at") == told(metrics, "learnt_at") == [0, 6, 12, 18, 24]
    assert all(told(metrics, "same"))
    assert metrics.steps.tolist() == [6, 12, 18, 24, 30] and int(state.learners[TEAM]) == 5
    # nothing was played that is not learnt from
    assert loop.opened.stepped == 5 * WINDOW and loop.ahead is None


def test_without_it_each_window_is_played_by_the_newest_learner() -> None:
    loop = counting(1000, staleness=0)
    state = loop.init(0)
    state, metrics = loop.compile(state, 4)(state)
    assert told(metrics, "played_by") == [0, 1, 2, 3] and loop.opened.stepped == 4 * WINDOW


def test_a_resumed_run_plays_two_windows_with_what_was_saved() -> None:
    """What was played ahead of the checkpoint is struck out: it was not counted, nor learnt
    from."""
    before = counting(1000)
    state = before.init(0)
    state, _ = before.compile(state, 3)(state)
    assert before.opened.stepped == 4 * WINDOW and int(state.steps) == 3 * GAMES * WINDOW
    after = counting(1000)
    after.template(0)
    state = after.restored(jax.device_get(state))
    state, metrics = after.compile(state, 3)(state)
    assert told(metrics, "played_by") == [3, 3, 4]
    assert metrics.steps.tolist() == [24, 30, 36]


@pytest.mark.parametrize("error", [Halted(), ShoalError("it fell over")])
def test_what_ends_the_game_ahead_leaves_what_was_learnt_meanwhile(error: Exception) -> None:
    loop = counting(1000)

    def breaks(step: int) -> None:
        if step == 2 * WINDOW + 1:  # in the third window
            raise error

    loop.breaks = breaks
    loop.halted = lambda: loop.opened.stepped > 2 * WINDOW and isinstance(error, Halted)
    state = loop.init(0)
    program = loop.compile(state, 10)
    state, metrics = program(state)
    assert told(metrics, "played_by") == [0, 0] and int(state.steps) == 2 * GAMES * WINDOW
    assert int(state.learners[TEAM]) == 2
    assert loop.failure is (error if isinstance(error, ShoalError) else None)
    state, metrics = program(state)
    assert metrics is None and int(state.learners[TEAM]) == 2


def test_players_that_do_not_learn_play_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults, dropped episodes and steps among it, exactly."""
    monkeypatch.syspath_prepend(str(SUPPORT))
    env = make("brittle:make", raises=0.3, reset=0.1)
    team = {TEAM: random_policy(env.teams[TEAM])}
    ends = []
    steps = 10**6
    for staleness in (0, 1):
        loop = HostLoop(env, team, 2, 20, steps, tolerance=10**6, staleness=staleness)
        with contextlib.closing(loop):
            state = loop.init(5)
            state, metrics = loop.compile(state, 4)(state)
        steps = int(state.steps)  # so that nothing is played ahead of the last
        ends.append((bits((state, metrics)), loop.dropped, [tuple(f)[:5] for f in loop.faults]))
    assert ends[0] == ends[1] and ends[0][1]


@pytest.mark.slow
def test_equal_seeds_give_equal_runs_whatever_the_number_of_workers() -> None:
    env = make("gym:CartPole-v1")
    ends = []
    for workers, staleness in ((0, 1), (2, 1), (0, 0)):
        algorithm = build("ppo", env, minibatches=1, **TINY)
        loop = HostLoop(env, {TEAM: algorithm}, 3, 20, 1000, 1, workers, staleness=staleness)
        with contextlib.closing(loop):
            state = loop.init(1)
            state, metrics = loop.compile(state, 3)(state)
        ends.append(bits((state.learners, metrics)))
    assert ends[0] == ends[1] != ends[2]


@pytest.mark.slow
def test_ppo_solves_identity_with_windows_one_update_old() -> None:
    env = Identity(n=2, length=10)
    algorithm = build("ppo", env, **TINY | {"hidden": 16})
    loop = OutsideLoop(env, {TEAM: algorithm}, 16, 10, 16_000, staleness=1)
    state = loop.init(0)
    _, metrics = loop.compile(state, 100)(state)
    ended = slice(-10, None)
    score = metrics.returns[TEAM][ended].sum() / metrics.episodes[ended].sum()
    assert score > 9.0, score  # of 10; play at random earns 2.5


@pytest.mark.slow
def test_a_run_is_stopped_and_resumed(tmp_path: Path) -> None:
    class Early(shoal.Callback):
        def on_iteration(self, run: Any, metrics: Any) -> None:
            if run.steps >= 120:
                run.stop()

    sizes = {"games": 2, "window": 10, "steps": 400, "workers": 0, "staleness": 1}
    few = {"evaluations": 0, "eval_episodes": 1, "minibatches": 1, "quiet": True, "preset": False}
    options: dict[str, Any] = sizes | few | TINY | {"out": str(tmp_path), "name": "run"}
    result = shoal.train("ppo", "gym:CartPole-v1", callbacks=[Early()], **options)
    assert 120 <= result.steps < 200
    result = shoal.resume(tmp_path / "run", quiet=True)
    assert 400 <= result.steps <= 420
    rows = [json.loads(row) for row in (tmp_path / "run" / "metrics.jsonl").open()]
    steps = [row["step"] for row in rows if "step" in row]
    assert steps == sorted(steps)


def test_who_cannot_be_stale_is_told_so() -> None:
    stale = {"staleness": 1}
    with pytest.raises(ShoalError, match="test/identity are compiled with it: set staleness to 0"):
        Config.build("test/identity", {TEAM: ("ppo", {})}, {}, stale)
    with pytest.raises(ShoalError, match="staleness must be 0 or 1, not 2"):
        Config.build("test/identity", {TEAM: ("ppo", {})}, {}, {"staleness": 2})
    with pytest.raises(ShoalError, match="one device learns while games go on, not 2"):
        Config.build("gym:CartPole-v1", {TEAM: ("ppo", {})}, {}, stale | {"devices": 2})
    one = Config.build("gym:CartPole-v1", {TEAM: ("ppo", {})}, {}, stale | {"games": 4})
    assert one.devices == 1
    two = {"player_0": ("ppo", {}), "player_1": ("past", {})}
    with pytest.raises(ShoalError, match="past of team 'player_1' must know who played"):
        Config.build("pz:pettingzoo.classic.connect_four_v3", two, {"teams": "each"}, stale)

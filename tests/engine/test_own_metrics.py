"""An environment's own metrics through both engines: those of whole episodes, read where they
end."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import numpy as np
import pytest
from games import Scored
from helpers import TEAM, TINY, assert_close, bits, build, clock, run
from jax import Array
from places import SUPPORT
from stages import AtOnce

from shoal.algorithms import random_policy
from shoal.engine import evaluate
from shoal.engine.evaluate import evaluator
from shoal.engine.host_loop import HostLoop
from shoal.engine.loop import Loop
from shoal.engine.stage import Stage
from shoal.envs import make
from shoal.envs.host.faults import Fault
from shoal.envs.native.probes import Identity
from shoal.errors import ShoalError
from shoal.types import View

NAMES = {"right", "agent/won"}


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environments of the support folder can be found by their ids."""
    monkeypatch.syspath_prepend(str(SUPPORT))


@pytest.mark.slow
@pytest.mark.parametrize(("length", "window"), [(3, 5), (7, 3), (4, 4)])
def test_training_sums_up_what_is_said_of_the_episodes_that_ended(length: int, window: int) -> None:
    """Ends fall inside windows, on their first step and on their last; nothing else counts."""
    env = Scored(length=length)
    loop = Loop(env, {TEAM: build("a2c", env, **TINY)}, games=4, window=window, steps=1000)
    _, metrics = run(loop, 6)
    assert metrics.episodes.sum() > 4 and set(metrics.own) == NAMES
    # agents of the team earned what was right
    np.testing.assert_allclose(metrics.own["right"], 2 * metrics.returns[TEAM], rtol=1e-6)
    assert (metrics.own["agent/won"] <= metrics.episodes).all()


@pytest.mark.slow
def test_a_game_that_says_nothing_trains_as_it_did() -> None:
    """The same game with and without metrics learns the same, to the bit."""
    silent, saying = (
        Loop(env, {TEAM: build("ppo", env, **TINY)}, games=4, window=5, steps=1000)
        for env in (Identity(length=3), Scored(length=3))
    )
    (a, without), (b, told) = run(silent, 3), run(saying, 3)
    assert without.own == {} and told.own
    assert bits(a.learners) == bits(b.learners)


def test_two_devices_say_what_one_does() -> None:
    env = Scored(length=3)
    loop = Loop(env, {TEAM: random_policy(env.teams[TEAM])}, 4, 5, 1000, devices=2)
    _, metrics = run(loop, 4)
    np.testing.assert_allclose(metrics.own["right"], 2 * metrics.returns[TEAM], rtol=1e-6)


class Outside(AtOnce):
    """A native game that is stepped from outside."""

    def __init__(self, game: Any, games: int):
        self.game, self.games = game, games
        self.advance = jax.jit(game.step)

    def open(self, keys: Array) -> tuple[dict[str, View], list[Fault]]:
        self.state, views = self.game.reset(keys[0], self.games)
        return views, []

    def step(self, keys: np.ndarray, t: int, actions: dict) -> tuple:
        key = jax.random.wrap_key_data(keys[0, t, 0])
        self.state, views = self.advance(key, self.state, actions)
        return views, np.zeros(self.games, bool), []

    def metrics(self) -> dict[str, np.ndarray]:
        return jax.device_get(self.game.measure(self.state))

    def episodes(self) -> np.ndarray:
        return np.zeros(self.games, np.uint32)

    def renew(self, episodes: np.ndarray) -> None:
        raise NotImplementedError

    def close(self) -> None:
        pass


class OutsideLoop(HostLoop):
    def stage(self, seed: int) -> Stage:
        return Outside(self.env, self.games)


def test_trap_30_both_engines_say_the_same() -> None:
    env = Scored(length=3)
    sizes = (env, {TEAM: build("ppo", env, **TINY)}, 4, 5, 1000)
    compiled, hosted = Loop(*sizes), OutsideLoop(*sizes)
    a, b = compiled.init(3), hosted.init(3)
    ours, theirs = compiled.compile(a, 4)(a)[1], hosted.compile(b, 4)(b)[1]
    assert ours and theirs and set(ours.own) == NAMES and ours.own["right"].sum() > 0
    assert_close(jax.device_get(ours.own), theirs.own, 1e-5)


def test_an_evaluation_says_it_of_every_episode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where fewer games than episodes are played at once."""
    monkeypatch.setattr(evaluate, "AT_ONCE", 4)
    env = Scored(length=5)
    played = evaluator(env, {TEAM: random_policy(env.teams[TEAM])}, 10, False)(
        {TEAM: ()}, 1, clock()
    )
    assert set(played.metrics) == NAMES
    np.testing.assert_array_equal(played.metrics["right"], played.returns[TEAM].sum(1))
    np.testing.assert_array_equal(played.metrics["agent/won"], played.metrics["right"] > 5)
    assert played.means() == {name: rows.mean() for name, rows in played.metrics.items()}
    assert len(set(played.metrics["right"])) > 1


def test_a_metric_that_is_no_number_ends_an_evaluation() -> None:
    class Nonsense(Scored):
        def episode_metrics(self, world: Any) -> dict[str, Array]:
            return {"right": world.right / 0.0, "agent/won": world.right}

    env = Nonsense(length=2)
    play = evaluator(env, {TEAM: random_policy(env.teams[TEAM])}, 3, False)
    with pytest.raises(ShoalError, match=r"the metric 'right' of test/scored was (nan|inf)"):
        play({TEAM: ()}, 1, clock())


def players(env: Any) -> dict[str, Any]:
    return {team: random_policy(spec) for team, spec in env.teams.items()}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 2])
def test_the_host_says_it_too(workers: int, here: None) -> None:
    env = make("tallies:make")
    assert env.metrics == ("right", "red/right", "won")
    nothing: dict[str, Any] = {"red": (), "blue": ()}
    with contextlib.closing(evaluator(env, players(env), 21, False, workers)) as play:
        played = play(nothing, 1, clock())
    everyone = np.concatenate([played.returns["red"], played.returns["blue"]], 1)
    np.testing.assert_allclose(played.metrics["right"], everyone.mean(1), rtol=1e-6)
    np.testing.assert_allclose(
        played.metrics["red/right"], played.returns["red"].mean(1), rtol=1e-6
    )
    loop = HostLoop(env, players(env), games=3, window=5, steps=100, workers=workers)
    with contextlib.closing(loop):
        state = loop.init(0)
        metrics = loop.compile(state, 6)(state)[1]
    assert metrics and metrics.episodes.sum() > 5
    np.testing.assert_allclose(metrics.own["red/right"], metrics.returns["red"], rtol=1e-5)


def test_broken_episodes_say_nothing(here: None) -> None:
    """A metric that is not finite is a fault like any other: its episode is dropped."""
    env = make("tallies:make", says="nan")
    loop = HostLoop(env, players(env), games=2, window=9, steps=100, tolerance=1000)
    with contextlib.closing(loop):
        state = loop.init(0)
        metrics = loop.compile(state, 2)(state)[1]
    assert metrics and metrics.episodes.sum() == 0 and not metrics.own["right"].any()
    assert loop.faults and "the metric 'right' is not finite" in loop.faults[0].report
    assert len(loop.dropped) == len(loop.faults)


def test_an_environment_that_says_nothing_shares_nothing_more(here: None) -> None:
    env = make("vices:make")
    with contextlib.closing(evaluator(env, players(env), 2, False)) as play:
        played = play({TEAM: ()}, 0, clock())
        assert played.metrics == {} and "metrics" not in play.arenas[0].arrays

"""Observations and rewards by running statistics: counted once, read everywhere, never scored."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import OFF, REPLAYED, TEAM, TINY, assert_close, bits, build, call, mortal, quick, run

from shoal.algorithms import find
from shoal.algorithms.standardiser import CLIP, Standardiser, Statistics
from shoal.engine.loop import Loop
from shoal.envs import make
from shoal.errors import ShoalError
from shoal.learning.normalise import ReturnNormaliser, RunningMoments
from shoal.types import Clock, Discrete, Spec, View, Window

BOTH = {"normalise_obs": True, "normalise_reward": True}
SPEC = Spec(("a", "b"), obs=3, state=4, action=Discrete(2), obs_sizes=(3, 2))
STEPS, GAMES = 6, 4


def window(seed: int = 0) -> Window:
    """Agent b lacks the third number and dies in game 0; step 2 of the last game is the dummy
    after an end."""
    rng = np.random.default_rng(seed)
    instants = (STEPS + 1, GAMES, 2)
    first = np.zeros(instants[:2], bool)
    first[3, -1] = True
    alive = np.ones(instants, bool)
    alive[4:, 0, 1] = False
    obs = rng.normal(5, 2, (*instants, 3)).astype(np.float32)
    obs[..., 1, 2] = 0.0
    view = View(
        obs=jnp.asarray(obs),
        state=jnp.asarray(rng.normal(-3, 4, (*instants[:2], 4)), jnp.float32),
        legal=jnp.ones((*instants, 2), bool),
        alive=jnp.asarray(alive),
        first=jnp.asarray(first),
        reward=jnp.asarray(rng.normal(1, 3, instants), jnp.float32),
        discount=jnp.asarray(alive, jnp.float32),
    )
    return Window(view, jnp.zeros((STEPS, GAMES, 2), jnp.int32), (), (), ())


def standardiser(**more: Any) -> Standardiser:
    settings: dict[str, Any] = {"obs": True, "reward": True, "pooling": "own", "gamma": 0.9}
    return Standardiser(SPEC, (0, 0), (), **settings | more)


@cache
def counted() -> tuple[Statistics, Any]:
    one = standardiser()
    return call(lambda: one.count(one.init(4), window()))


def test_trap_24_what_the_living_saw_when_they_acted_is_counted():
    played = window()
    statistics, metrics = counted()
    acted = np.asarray(played.weight) > 0
    assert 0 < acted.mean() < 1
    obs = np.asarray(played.view.obs)[:-1]
    third = acted & (np.arange(2) == 0)  # agent b has none: it is padded
    for number, where in enumerate((acted, acted, third)):
        seen = obs[..., number][where]
        assert statistics.obs.counted[0, number] == len(seen)
        assert_close(statistics.obs.mean[0, number], seen.mean(), 1e-5)
        assert_close(statistics.obs.variance[0, number], seen.var(), 1e-4)
    states = np.asarray(played.view.state)[:-1][acted.any(-1)]
    assert_close(statistics.state.mean[0], states.mean(0), 1e-5)
    assert_close(statistics.state.variance[0], states.var(0), 1e-4)
    assert metrics["reward_unit"] == pytest.approx(statistics.returns.variance**0.5)


def test_padding_stays_0_the_absent_are_0_and_what_is_far_is_clipped():
    statistics, _ = counted()
    one = standardiser()
    view = window().view
    far = view._replace(obs=view.obs.at[0, 0, 0, 0].set(1e6))
    read = np.asarray(one.seen(statistics, far).obs)
    assert (read[..., 1, 2] == 0).all() and (read[4:, 0, 1] == 0).all()
    assert read[0, 0, 0, 0] == CLIP
    there = np.asarray(view.obs)[1, 1, 0]
    moments: RunningMoments = statistics.obs
    assert_close(read[1, 1, 0], (there - moments.mean[0]) / np.sqrt(moments.variance[0]), 1e-5)
    near = one.seen(statistics, view)
    acted = np.asarray(window().weight) > 0
    assert np.asarray(near.obs)[:-1][acted][:, :2].std() == pytest.approx(1, abs=1e-4)
    assert (near.legal == view.legal).all()


def test_numbers_that_hearing_needs_are_left_as_they_are():
    one = Standardiser(SPEC, (0, 0), (1,), True, False, "own", 0.9)
    read = one.seen(counted()[0], window().view).obs
    living = np.asarray(window().view.alive)
    np.testing.assert_array_equal(read[..., 1][living], window().view.obs[..., 1][living])


def test_rewards_are_in_deviations_of_their_discounted_sums():
    """Sums by hand: backwards, cut where an episode or an agent's life ends."""
    played = window()
    reward, discount = np.asarray(played.reward), np.asarray(played.discount)
    valid = np.asarray(played.valid)
    sums = np.zeros_like(reward)
    later = np.zeros_like(reward[0])
    for t in reversed(range(STEPS)):
        later = valid[t] * (reward[t] + 0.9 * discount[t] * later)
        sums[t] = later
    lived = np.asarray(played.weight) > 0
    statistics, _ = counted()
    unit = sums[lived].std()
    assert float(standardiser().unit(statistics)) == pytest.approx(unit, rel=1e-4)
    read = standardiser().earned(statistics, played.view).reward
    assert_close(read, np.clip(np.asarray(played.view.reward) / unit, -CLIP, CLIP), 1e-4)


def test_without_any_reward_so_far_a_reward_is_left_as_it_is():
    nothing = ReturnNormaliser(jnp.zeros(()), jnp.zeros(()), jnp.float32(3.0))
    assert float(standardiser().unit(Statistics(returns=nothing))) == 1.0


# -- in every family -------------------------------------------------------------------------------


@cache
def trained(name: str, iterations: int, **more: Any) -> tuple[Any, Any, Any]:
    env = make("test/endless", length=5)
    settings = TINY | (OFF if name in REPLAYED else {}) | more
    algorithm = build(name, env, **settings)
    loop = Loop(env, {TEAM: algorithm}, games=4, window=12, steps=1000)
    return algorithm, *run(loop, iterations)


@pytest.mark.slow
def test_before_anything_is_counted_it_is_as_without_to_the_bit():
    """The first window is read as it is; the second is not."""
    plain, one = (trained("ppo", 1, **more)[1].learners[TEAM] for more in ({}, BOTH))
    assert bits(plain.params) == bits(one.params)
    assert plain.statistics == () and one.statistics.obs.counted.min() > 0
    plain, one = (trained("ppo", 3, **more)[1].learners[TEAM] for more in ({}, BOTH))
    assert bits(plain.params) != bits(one.params)


@pytest.mark.slow
@pytest.mark.parametrize("name", quick(["mappo", "qmix", "maddpg", "pqn"], 2))
def test_scores_are_the_games(name: str):
    """`test/endless` pays 1 for each of 5 steps: so it is scored, whatever is learnt from."""
    _, state, metrics = trained(name, 3, **BOTH)
    assert metrics.episodes.sum() and (metrics.returns[TEAM] == 5 * metrics.episodes).all()
    unit = metrics.learning[TEAM]["reward_unit"]
    assert (unit > 0.5).all() and np.isfinite(jax.tree.leaves(state.learners)[0]).all()


@pytest.mark.slow
def test_trap_12_acting_and_learning_read_alike():
    """One gradient step on what was played by moved statistics: the ratio is 1 before it."""
    env = mortal()
    algorithm = build("ppo", env, epochs=1, minibatches=1, **BOTH, **TINY)
    loop = Loop(env, {TEAM: algorithm}, games=4, window=10, steps=1000)
    state, metrics = run(loop, 3)
    assert np.abs(state.learners[TEAM].statistics.obs.mean).max() > 0.1
    assert np.abs(metrics.learning[TEAM]["approx_kl"]).max() < 1e-6


@pytest.mark.parametrize("name", quick(["mappo", "coma", "qtran", "masac", "sable"], 1))
def test_what_acts_keeps_its_statistics(name: str):
    """A policy that is saved, frozen or sent to another machine acts as the learner did."""
    env = mortal()
    algorithm = build(name, env, **(TINY | (OFF if name in REPLAYED else {}) | BOTH))
    learner = algorithm.init(np.random.default_rng(0))
    obs = learner.statistics.obs
    moved = RunningMoments(obs.mean + 2.0, obs.variance * 9.0, obs.counted + 5.0)
    learner = learner._replace(statistics=learner.statistics._replace(obs=moved))
    view = env.reset(jax.random.key(0), 4)[1][TEAM]

    def logits(learner: Any) -> Any:
        carry = algorithm.carry(learner, 4)
        return algorithm.logits(learner, view, carry, Clock(jnp.zeros(()), jnp.zeros(())))

    kept = algorithm.acting(learner)
    assert bits(kept.statistics.obs) == bits(moved)
    assert_close(jax.jit(logits)(kept), jax.jit(logits)(learner), 0)
    plain = jax.jit(logits)(algorithm.init(np.random.default_rng(0)))
    assert np.abs(np.asarray(plain) - np.asarray(jax.jit(logits)(kept))).max() > 1e-3


def test_images_are_refused():
    spec = Spec(("a",), obs=48, state=0, action=Discrete(2), pixels=(4, 4, 3))
    kind = find("ppo")
    with pytest.raises(ShoalError, match="images, which nets scale"):
        kind(kind.Config(normalise_obs=True), spec)

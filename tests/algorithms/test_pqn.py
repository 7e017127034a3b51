"""PQN: λ-returns of the utilities that played, from the window just played and nothing else."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
import pytest
from helpers import PARALLEL, TEAM, TINY, assert_close, bits, build, call, clock, mortal, run
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.algorithms.pqn import PQN
from shoal.config.config import Config
from shoal.engine.loop import Loop
from shoal.engine.play import Play, collect
from shoal.envs import make
from shoal.errors import ShoalError
from shoal.learning.exploration import SCHEDULES
from shoal.learning.minibatches import UtilityBatch, fold_time
from shoal.types import Share, Window

GAMMA = 0.9
MIXING = [name for name in PARALLEL if name != "pqn"]


class Studied(NamedTuple):
    """A learner that has not learnt yet, what it played, and its rows."""

    algorithm: PQN
    learner: Any
    window: Window  # its record is the utilities of every agent when it acted
    batch: UtilityBatch
    utilities: np.ndarray  # [T+1,B,N,A] of the whole window, unrolled again


@cache
def studied(name: str, **settings: Any) -> Studied:
    """The second window of 9 steps of 4 games whose agents die in turn, each of 6 steps."""
    env = mortal()
    algorithm = build(name, env, gamma=GAMMA, **TINY | settings)
    plain = algorithm.act

    def act(learner: Any, key: Any, view: Any, carry: Any, now: Any, greedy: bool) -> Any:
        q, _ = algorithm.utilities(
            learner.params["agents"], algorithm.context(learner, view, carry), carry.hidden
        )
        return plain(learner, key, view, carry, now, greedy)._replace(record=q[0])

    algorithm.act = act

    def whole() -> tuple:
        learner = algorithm.init(np.random.default_rng(0))
        game, views = env.reset(jax.random.key(0), 4)
        play = Play(game, views, {TEAM: algorithm.carry(learner, 4)})
        for number in range(2):
            key = jax.random.key(number)
            play, seen, _ = collect(
                env, {TEAM: algorithm}, {TEAM: learner}, play, key, clock(100_000), 9
            )
        window = seen[TEAM]
        batch = algorithm.prepare(learner, window)
        q, _ = algorithm.utilities(
            learner.params["agents"], algorithm.instants(window), window.carry.hidden
        )
        return learner, window, batch, q

    found = call(whole)
    del algorithm.act
    return Studied(algorithm, *found)


# -- targets ---------------------------------------------------------------------------------------


def best_values(seen: Studied) -> np.ndarray:
    """`[T+1,B,N or 1]` the best legal utility; of a sum, that of all who live."""
    view = seen.window.view
    best = np.where(view.legal, seen.utilities, -np.inf).max(-1)
    mixes = seen.algorithm.name == "pqn_vdn"
    return (best * view.alive).sum(-1, keepdims=True) if mixes else best


def returned(seen: Studied, values: np.ndarray, lam: float) -> np.ndarray:
    """λ-returns from their definition, one game, agent and step after another."""
    window = seen.window
    reward = np.asarray(window.view.reward)[1:]
    discount = np.asarray(window.view.discount)[1:]
    if seen.algorithm.config.reward == "mean":
        reward = np.broadcast_to(reward.mean(-1, keepdims=True), reward.shape)
        discount = np.broadcast_to(discount.max(-1, keepdims=True), discount.shape)
    steps, games, rows = values[1:].shape
    target = np.zeros((steps, games, rows))
    for game, row in np.ndindex(games, rows):
        later = values[steps, game, row]
        for t in reversed(range(steps)):
            if window.view.first[t + 1, game]:  # leads nowhere: instant t ends an episode
                later = values[t, game, row]
            else:
                ahead = (1 - lam) * values[t + 1, game, row] + lam * later
                later = reward[t, game, row] + GAMMA * discount[t, game, row] * ahead
            target[t, game, row] = later
    return target


@pytest.mark.parametrize("lam", [0.0, 0.6, 1.0])
@pytest.mark.parametrize(("name", "reward"), [("pqn", "own"), ("pqn", "mean"), ("pqn_vdn", "mean")])
def test_targets_are_the_returns_of_their_definition(name, reward, lam):
    seen = studied(name, lam=lam, reward=reward)
    expected = returned(seen, best_values(seen), lam)
    valid = np.asarray(seen.window.valid)[..., 0]
    assert (~valid).any() and np.asarray(seen.window.discount).min() == 0
    np.testing.assert_allclose(seen.batch.target[valid], expected[valid], atol=1e-5)


def test_without_lambda_a_target_is_one_reward_and_the_best_legal_utility():
    seen = studied("pqn", lam=0.0)
    window = seen.window
    ahead = np.where(window.view.legal, seen.utilities, -np.inf).max(-1)[1:]
    expected = window.view.reward[1:] + GAMMA * window.view.discount[1:] * ahead
    valid = np.asarray(window.valid)[..., 0]
    np.testing.assert_allclose(seen.batch.target[valid], expected[valid], atol=1e-6)


def test_with_lambda_1_a_target_is_all_rewards_until_the_end_or_the_last_value():
    """Of the team: its task ends with the episode; what the window cuts is bootstrapped."""
    seen = studied("pqn_vdn", lam=1.0)
    view = seen.window.view
    first = np.asarray(view.first)
    reward = np.asarray(view.reward).mean(-1)
    ends = {True: 0, False: 0}
    for game in range(4):
        for t in range(9):
            if first[t + 1, game]:
                continue
            after = [k for k in range(t + 1, 10) if first[k, game]]
            end = after[0] - 1 if after else 9  # the last instant of its episode in the window
            sum_ = sum(GAMMA ** (k - t - 1) * reward[k, game] for k in range(t + 1, end + 1))
            over = not view.discount[end, game].any()
            rest = 0.0 if over else GAMMA ** (end - t) * best_values(seen)[end, game, 0]
            assert seen.batch.target[t, game, 0] == pytest.approx(sum_ + rest, abs=1e-5)
            ends[over] += 1
    assert min(ends.values()) > 0


@given(st.integers(0, 2**16), st.sampled_from(PARALLEL))
@settings(max_examples=6, deadline=None)
def test_trap_16_no_value_of_an_illegal_action_reaches_a_target(seed, name):
    seen = studied(name)
    view = seen.window.view
    rng = np.random.default_rng(seed)
    noise = np.where(view.legal, 0.0, rng.uniform(-9, 9, view.legal.shape)).astype(np.float32)

    def targets(more: Any) -> Any:
        algorithm = build(name, mortal(), gamma=GAMMA, **TINY)
        plain = algorithm.utilities
        algorithm.utilities = lambda *x: (plain(*x)[0] + more, plain(*x)[1])
        return algorithm.prepare(seen.learner, seen.window).target

    assert bits(call(targets, noise)) == bits(call(targets, noise * 0))


# -- what is learnt from ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", PARALLEL)
def test_there_is_no_target_network_and_no_replay(name):
    env = mortal()
    algorithm = build(name, env, **TINY)
    state, _ = run(Loop(env, {TEAM: algorithm}, games=4, window=10, steps=1000), 2)
    learner = state.learners[TEAM]
    parts = {"agents", "mixer"} if name == "pqn_qmix" else {"agents"}
    assert "target" not in learner._fields
    assert set(learner.params) == set(learner.opt) == parts
    assert jax.tree.leaves(state.memories[TEAM]) == []
    steps = {int(opt[1].count) for opt in learner.opt.values()}
    assert steps == {2 * algorithm.config.epochs * algorithm.config.minibatches}


@pytest.mark.parametrize("name", PARALLEL)
def test_training_moves_every_parameter(name):
    env = mortal()
    algorithm = build(name, env, torso="gru", sharing="own", last_action=True, **TINY)
    state, metrics = run(Loop(env, {TEAM: algorithm}, games=4, window=10, steps=1000), 2)
    learner = state.learners[TEAM]
    fresh = algorithm.init(np.random.default_rng(0)).params
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((learner, metrics)))
    assert all(
        ours != theirs for ours, theirs in zip(bits(learner.params), bits(fresh), strict=True)
    )
    assert {"loss", "q", "error", "epsilon", "agents_grad_norm"} <= set(metrics.learning[TEAM])


@pytest.mark.parametrize("torso", ["mlp", "gru"])
def test_trap_13_18_the_window_gives_the_utilities_that_acted(torso):
    """Also at its first steps, in the middle of an episode."""
    seen = studied("pqn", torso=torso, last_action=True)
    assert not np.asarray(seen.window.view.first)[0].all()
    np.testing.assert_allclose(seen.utilities[:-1], seen.window.record, atol=1e-5)


def test_each_row_is_a_step_without_memory_and_a_game_with_it():
    batch = studied("pqn").batch
    rows = fold_time(batch, "carry")
    assert rows.action.shape == (1, 36, 2)
    np.testing.assert_array_equal(rows.target[0], batch.target.reshape(36, 2))
    env = make("test/identity")
    Loop(env, {TEAM: build("pqn", env, minibatches=40)}, games=4, window=10, steps=1000)
    with pytest.raises(ShoalError, match="4 games on each device cannot be split into 40"):
        build("pqn", env, minibatches=40, torso="gru").check(Share(games=4, window=10))


@pytest.mark.parametrize(("name", "reward"), [("pqn", "own"), ("pqn", "mean"), ("pqn_vdn", "mean")])
def test_trap_08_a_pooled_reward_counts_after_a_death_an_own_one_does_not(name, reward):
    seen = studied(name, reward=reward)
    alive = np.asarray(seen.window.view.alive)[:-1]
    valid = np.asarray(seen.window.valid)[..., 0]
    widow = valid & ~alive[..., 0] & alive[..., 1]
    weight = np.asarray(seen.batch.weight)
    assert widow.any() and not weight[~valid].any()
    assert weight[widow].tolist() == [[float(reward == "mean"), 1.0]] * int(widow.sum())


@pytest.mark.parametrize("name", MIXING)
def test_trap_08_11_what_the_dead_see_enters_no_mix(name):
    seen = studied(name)
    view = seen.window.view
    obs = np.where(view.alive[..., None], view.obs, 7.0).astype(np.float32)
    assert (obs != view.obs).any()
    haunted = seen.window._replace(view=view._replace(obs=obs))

    def learnt(window: Window) -> tuple:
        batch = seen.algorithm.prepare(seen.learner, window)
        loss = seen.algorithm.losses(seen.learner.params, seen.learner, batch, clock())
        return batch.target, loss

    ours, theirs = call(lambda a, b: (learnt(a), learnt(b)), seen.window, haunted)
    assert_close(ours, theirs, 1e-6)


def test_trap_17_a_mixer_has_no_reward_of_ones_own():
    for name in MIXING:
        with pytest.raises(ShoalError, match="reward must be one of mean, sum, not 'own'"):
            Config.build("test/mortal", {TEAM: (name, {"reward": "own"})}, {}, {})


# -- exploration -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("decay", SCHEDULES)
def test_trap_19_epsilon_is_a_function_of_the_steps_alone(decay):
    options = {"epsilon": 0.8, "epsilon_end": 0.1, "epsilon_steps": 90, "epsilon_decay": decay}
    env = make("test/identity", n=1, length=5)
    algorithm = build("pqn", env, **TINY, **options)
    _, metrics = run(Loop(env, {TEAM: algorithm}, games=4, window=6, steps=1000), 4)
    steps = np.array([0, *metrics.steps[:-1]], np.float32)
    expected = [SCHEDULES[decay](0.8, 0.1, 90, s) for s in steps]
    np.testing.assert_allclose(metrics.learning[TEAM]["epsilon"], expected, rtol=1e-5)


def test_with_epsilon_0_it_plays_what_it_thinks_best():
    seen = studied("pqn", epsilon=0.0, epsilon_end=0.0)
    best = np.where(seen.window.view.legal[:-1], seen.window.record, -np.inf).argmax(-1)
    assert (seen.window.action == best).all()
    other = studied("pqn", epsilon=1.0, epsilon_end=1.0)
    best = np.where(other.window.view.legal[:-1], other.window.record, -np.inf).argmax(-1)
    assert (other.window.action != best).any()


# -- what it becomes -------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["identity", "mortal"])
def test_trap_30_pqn_vdn_of_one_agent_is_pqn_to_the_bit(kind):
    env = make(f"test/{kind}", n=1, length=5)
    learners = {}
    for name in ("pqn", "pqn_vdn"):
        algorithm = build(name, env, **TINY)
        loop = Loop(env, {TEAM: algorithm}, games=4, window=8, steps=1000)
        learners[name] = run(loop, 3)[0].learners[TEAM]
    assert bits(learners["pqn"]) == bits(learners["pqn_vdn"])

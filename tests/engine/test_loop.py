"""The loop and evaluation: counting, repeating, sharing over devices, several teams."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    OFF,
    OWN,
    SAME,
    TEAM,
    TINY,
    assert_close,
    bits,
    build,
    clock,
    mortal,
    on_devices,
    opened,
    probe,
    quick,
    run,
)
from jax import Array
from jax.sharding import PartitionSpec

from shoal.engine import evaluate
from shoal.engine.evaluate import Evaluator
from shoal.engine.loop import Loop
from shoal.envs import Game, make
from shoal.errors import ShoalError
from shoal.learning.reduce import AXIS, mean_weights, moments, total
from shoal.types import Discrete, Spec

# -- one team, one device --------------------------------------------------------------------------


KINDS = {
    "ppo": {"torso": "gru", "minibatches": 2, "epochs": 2, **TINY},
    "dqn": {"torso": "gru", "priority": 0.6, "last_action": True, **TINY, **OFF},
    "maddpg": TINY | OFF,
}


@cache
def small(name: str = "ppo"):
    """A loop, its program of one iteration, and a copy of its first state."""
    env = mortal()
    loop = Loop(env, {TEAM: build(name, env, **KINDS[name])}, 4, 8, 1000)
    return loop, loop.program(1), jax.tree.map(np.array, loop.init(0))


def after(state, iterations: int, name: str = "ppo"):
    """A copy of the state so many iterations later."""
    loop, step, _ = small(name)
    for _ in range(iterations):
        state, _ = step(jax.device_put(state, loop.shardings))
    return jax.tree.map(np.array, state)


def test_a_run_may_have_more_steps_than_a_signed_integer_holds():
    env = mortal()
    loop = Loop(env, {TEAM: build("random", env)}, 4, 8, 2**32 - 1)
    assert jax.jit(loop.clock)(jnp.uint32(2**31)).progress == 0.5


@pytest.mark.parametrize("name", KINDS)
def test_a_run_repeats_to_the_bit_and_another_seed_differs(name):
    loop, _, state = small(name)
    assert bits(after(state, 2, name)) == bits(after(loop.init(0), 2, name))
    ours, other = after(state, 2, name), after(loop.init(1), 2, name)
    assert bits(ours.views) != bits(other.views) and bits(ours.learners) != bits(other.learners)


@pytest.mark.parametrize("name", KINDS)
def test_trap_27_the_state_decides_the_future(name):
    """Going on from a copy of the state, with nothing else kept, is going on: replay, priorities,
    targets and all."""
    _, _, state = small(name)
    assert bits(after(after(state, 2, name), 1, name)) == bits(after(state, 3, name))


@pytest.mark.parametrize("name", KINDS)
def test_the_state_is_plain_arrays(name):
    """Nothing else could be saved: no keys of a special type, no Python numbers, no functions."""
    for leaf in jax.tree.leaves(small(name)[0].init(0)):
        assert isinstance(leaf, jax.Array)
        np.asarray(leaf)


def test_shapes_are_enough_to_compile_the_program_of_a_state():
    loop, program, state = small()
    like = loop.template(0)
    assert program.lower(like).as_text() == program.lower(loop.restored(state)).as_text()
    assert jax.tree.map(np.shape, like) == jax.tree.map(np.shape, state)


@pytest.mark.parametrize("name", KINDS)
def test_the_program_keeps_the_states_types(name):
    _, _, state = small(name)
    for ours, theirs in zip(
        jax.tree.leaves(after(state, 1, name)), jax.tree.leaves(state), strict=True
    ):
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)


@pytest.mark.parametrize(("length", "window"), [(3, 8), (1, 7)])
def test_trap_04_26_valid_steps_are_counted_exactly(length, window):
    """Every episode of `length` steps takes one more instant to reopen, which is no step."""
    env = make("test/identity", n=2, length=length)
    loop = Loop(env, {TEAM: build("random", env)}, games=4, window=window, steps=1000)
    state, metrics = run(loop, 3)
    per_game = [sum(t % (length + 1) != length for t in range(window * (i + 1))) for i in range(3)]
    assert metrics.steps.tolist() == [4 * steps for steps in per_game]
    assert state.steps == 4 * per_game[-1]
    assert metrics.episodes.sum() == 4 * (3 * window // (length + 1))


def test_returns_are_those_of_whole_episodes_though_windows_are_shorter():
    """Reward 1 a step: every episode of 7 steps returns 7, in windows of 4."""
    env = make("test/endless", n=2, length=7)
    _, metrics = run(Loop(env, {TEAM: build("random", env)}, games=3, window=4, steps=1000), 6)
    assert metrics.episodes.tolist() == [0, 3, 0, 3, 0, 3]
    np.testing.assert_allclose(metrics.returns[TEAM], 7 * metrics.episodes)


# -- several devices -------------------------------------------------------------------------------


def test_games_that_cannot_be_shared_evenly_are_refused():
    with pytest.raises(ShoalError, match="3 games cannot be shared evenly by 2 devices"):
        Loop(mortal(), {}, games=3, window=4, steps=10, devices=2)


def test_shares_and_sums_over_two_devices_are_those_over_all_rows():
    rng = np.random.default_rng(0)
    x, weight = (
        rng.normal(size=(6, 3)).astype(np.float32),
        rng.integers(0, 2, (6, 3)).astype(np.float32),
    )
    weight[:3] = 0.0
    weight[0, 0] = 1.0  # one device has far less to say than the other

    def mean_square(scale: Array, x: Array, weight: Array):
        share = mean_weights(weight)
        return total(jax.value_and_grad(lambda s: ((s * x) ** 2 * share).sum())(scale)), moments(
            x, share
        )

    both = jax.jit(on_devices(mean_square, 2, ins=(SAME, OWN, OWN)))
    (value, slope), (mean, variance) = both(jnp.float32(1.5), x, weight)
    acted = x[weight > 0]
    np.testing.assert_allclose(
        [value, slope], [2.25 * (acted**2).mean(), 3.0 * (acted**2).mean()], rtol=1e-5
    )
    np.testing.assert_allclose([mean, variance], [acted.mean(), acted.var()], rtol=1e-4)


def test_two_devices_learn_from_their_shares_what_one_learns_from_all():
    """Normalisers, advantages and gradients are those of the whole batch, not means of two
    halves'."""
    algorithm, seen = probe("a2c").algorithm, probe("a2c").seen

    def learn(learner, memory, clock):
        return algorithm.learn(learner, memory, jax.random.key(0), clock)[0]

    window = seen.memory.window
    by_game = jax.tree.map(lambda _: PartitionSpec(None, AXIS), window)
    by_game = by_game._replace(
        **{k: jax.tree.map(lambda _: OWN, getattr(window, k)) for k in ("carry", "carry_end")}
    )
    ins = (SAME, seen.memory._replace(carry=OWN, window=by_game), SAME)
    alone, both = (
        jax.jit(on_devices(learn, n, ins))(seen.learner, seen.memory, seen.clock) for n in (1, 2)
    )
    assert_close(both.scale, alone.scale, 1e-5)
    assert_close(both.opt, alone.opt, 1e-5)
    assert_close(both.params, alone.params, 1e-4)


def test_the_loop_runs_on_two_devices_and_learners_stay_the_same_on_both():
    env = mortal()
    loop = Loop(
        env, {TEAM: build("ppo", env, minibatches=2, epochs=2, **TINY)}, 4, 8, 1000, devices=2
    )
    state = loop.init(0)
    state, metrics = loop.program(2)(state)
    for leaf in jax.tree.leaves((state.learners, state.steps)):
        one, other = (np.asarray(shard.data) for shard in leaf.addressable_shards)
        assert one.tobytes() == other.tobytes() and one.shape == leaf.shape
    assert metrics.steps.tolist() == [4 * 7, 4 * 14]
    obs, keys = np.asarray(state.views[TEAM].obs), np.asarray(state.key)
    assert (
        obs.shape[:2] == (2, 2) and bits(obs[0]) != bits(obs[1]) and bits(keys[0]) != bits(keys[1])
    )


# -- several teams ---------------------------------------------------------------------------------


def against(env_id: str, **teams: str):
    """Two iterations of teams that learn differently: the states before and after, the metrics."""
    env = make(env_id)
    kinds = {
        team: build(name, env, team, **({} if name == "random" else TINY))
        for team, name in teams.items()
    }
    loop = Loop(env, kinds, games=4, window=8, steps=1000)
    return loop, *run(loop, 2)


@pytest.mark.slow
def test_teams_with_different_algorithms_each_have_their_own_learner():
    loop, state, metrics = against("matrix/matching_pennies", even="coma", odd="ppo")
    fresh = {
        team: algorithm.init(np.random.default_rng(0))
        for team, algorithm in loop.algorithms.items()
    }
    assert state.learners["even"].target is not None and state.learners["odd"].target is None
    for team in ("even", "odd"):
        assert bits(state.learners[team].params) != bits(fresh[team].params)
    assert (
        "clip_fraction" in metrics.learning["odd"]
        and "clip_fraction" not in metrics.learning["even"]
    )
    np.testing.assert_allclose(metrics.returns["even"], -metrics.returns["odd"], atol=1e-5)


@pytest.mark.slow
def test_on_policy_and_off_policy_teams_play_each_other():
    _, state, metrics = against("matrix/matching_pennies", even="dqn", odd="mappo")
    assert state.learners["even"].updates == 0  # too early: 10,000 steps
    assert not metrics.learning["even"]["updates"].any()
    assert state.memories["even"].size == 16 and state.learners["odd"].scale.windows > 1


@pytest.mark.slow
def test_a_scripted_team_learns_nothing_while_the_other_does():
    _, state, metrics = against("mpe/simple_tag", adversary="a2c", agent="random")
    assert state.learners["agent"] == () and metrics.learning["agent"] == {}
    assert state.learners["adversary"].scale.windows > 1
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))


# -- evaluation ------------------------------------------------------------------------------------


class Fate(NamedTuple):
    end: Array  # [B] steps this episode will last
    time: Array  # [B]


@dataclass(frozen=True)
class Countdown(Game):
    """Episodes of 1 to 6 steps; step t costs agent_0 t and agent_1 ten times as much, the last step
    too."""

    name = "test/countdown"
    teams = {TEAM: Spec(("agent_0", "agent_1"), obs=1, state=2, action=Discrete(2))}
    limit = 10

    def start(self, key, games):
        return Fate(jax.random.randint(key, (games,), 1, 7), jnp.zeros(games, jnp.int32))

    def advance(self, key, world, actions):
        return world._replace(time=world.time + 1)

    def observe(self, world):
        return {TEAM: jnp.broadcast_to(world.time.astype(jnp.float32), (2, 1, world.time.shape[0]))}

    def reward(self, world):
        return {TEAM: -world.time * jnp.array([[1.0], [10.0]])}

    def terminal(self, world, clock):
        return clock >= world.end


@pytest.fixture(scope="module")
def countdown() -> Evaluator:
    return Evaluator(Countdown(), {TEAM: build("random", Countdown())}, episodes=24, greedy=True)


def test_trap_07_25_a_row_holds_the_first_episodes_whole_reward(countdown):
    """Games end at different times: the early ones play on, uncounted, and the last step counts."""
    rows = countdown({TEAM: ()}, 0, clock())
    assert rows.returns[TEAM].shape == (24, 2) and rows.length.shape == (24,)
    assert set(rows.length) <= set(range(1, 7)) and len(set(rows.length)) > 3
    cost = rows.length * (rows.length + 1) / 2
    np.testing.assert_allclose(rows.returns[TEAM], np.stack([-cost, -10 * cost], -1))


def test_trap_25_the_score_is_the_mean_of_its_rows_alone(countdown):
    """Scores below zero stay there: nothing starts from 0."""
    rows = countdown({TEAM: ()}, 0, clock())
    assert rows.score()[TEAM] == pytest.approx(rows.returns[TEAM].mean())
    assert rows.score()[TEAM] < rows.returns[TEAM].max() < 0


def test_trap_25_equal_seeds_face_equal_games(countdown):
    one, again, other = (countdown({TEAM: ()}, seed, clock()) for seed in (3, 3, 4))
    assert bits(one) == bits(again) != bits(other)


def test_trap_25_one_row_per_episode_whatever_fits_side_by_side(monkeypatch):
    monkeypatch.setattr(evaluate, "AT_ONCE", 2)
    rows = Evaluator(Countdown(), {TEAM: build("random", Countdown())}, episodes=5, greedy=False)(
        {TEAM: ()}, 0, clock()
    )
    assert rows.returns[TEAM].shape == (5, 2)
    np.testing.assert_allclose(rows.returns[TEAM][:, 0], -rows.length * (rows.length + 1) / 2)


def test_trap_25_evaluation_leaves_training_alone():
    """It takes learners and a seed, and the state it was called beside goes on as if nothing had
    been."""
    loop, _, state = small()
    live = jax.device_put(state, loop.shardings)
    evaluator = Evaluator(loop.env, loop.algorithms, 3, greedy=True)
    rows = evaluator(live.learners, 0, clock())
    assert bits(live) == bits(state)
    assert rows.length.tolist() == [6, 6, 6]
    assert rows.returns[TEAM].min() > 0


def test_greedy_evaluation_repeats_where_sampling_differs():
    """A policy's mode against its draws: the same games, another return."""
    env = make("test/identity", n=2, length=20)
    algorithm = build("a2c", env, **TINY)
    learner = algorithm.init(np.random.default_rng(0))
    view = opened(env, 16)[1][TEAM]
    carry = algorithm.carry(learner, 16)

    def choose(key):
        return [
            algorithm.act(learner, key, view, carry, clock(), greedy).action
            for greedy in (True, False)
        ]

    one, other = jax.jit(choose)(jax.random.key(1)), jax.jit(choose)(jax.random.key(2))
    assert bits(one[0]) == bits(other[0]) and bits(one[1]) != bits(other[1])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mappo", "qmix", "maddpg"])
def test_thousands_of_games_learn_in_one_call_that_never_leaves_its_device(name):
    """As many games as an accelerator would play: nothing goes to the host inside a call."""
    env = make("test/identity", n=2, length=6)
    options = TINY | (OFF | {"capacity": 8_192 * 8} if name != "mappo" else {})
    loop = Loop(env, {TEAM: build(name, env, **options)}, 8_192, 8, 200_000, 1)
    state = loop.init(0)
    program = loop.program(2).lower(state).compile()
    text = program.as_text()
    assert not [
        word for word in ("infeed", "outfeed", "send(", "recv(", "callback") if word in text
    ]
    state, _ = program(state)
    assert int(state.steps) == 8_192 * 14  # of 16; after every sixth, one that opens the game anew


# -- as many games as an accelerator wants ---------------------------------------------------------

# what a compiled program has where it exchanges anything with the host before it ends
ON_THE_HOST = re.compile(r" (infeed|outfeed|send|recv)\(|custom_call_target=\"[^\"]*callback")


@pytest.mark.parametrize("name", quick(KINDS, 1))
def test_a_call_with_8192_games_transfers_nothing_to_the_host(name):
    env = mortal()
    options = KINDS[name] | ({"capacity": 16 * 8192} if "capacity" in KINDS[name] else {})
    loop = Loop(env, {TEAM: build(name, env, **options)}, 8192, 8, 10**6)
    program = loop.program(2).lower(state := loop.init(0)).compile()
    assert not ON_THE_HOST.search(program.as_text())
    _, metrics = program(state)
    assert 0.8 < int(metrics.steps[-1]) / (2 * 8192 * 8) < 1  # some steps reopen a game


def test_a_transfer_to_the_host_would_be_found():
    def telling(x: Array) -> Array:
        jax.debug.callback(lambda _: None, x)
        return x + 1

    assert ON_THE_HOST.search(jax.jit(telling).lower(jnp.ones(2)).compile().as_text())

"""The policy family in turn: the product of ratios, and what it is where there is only one turn."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import OWN, TEAM, TINY, assert_close, bits, build, call, clock, mortal, on_devices, run
from jax import Array

from shoal.engine.loop import Loop
from shoal.engine.play import Play, collect
from shoal.envs import Env, make
from shoal.errors import ShoalError
from shoal.learning.trees import at

EPOCHS = {"epochs": 2, "minibatches": 2}


def prepared(algorithm: Any, env: Env) -> tuple[Any, Any, Any]:
    """An algorithm on a game whose agents die in turn, its learner, and a window to learn from."""
    loop = Loop(env, {TEAM: algorithm}, games=4, window=8, steps=1000)

    def whole() -> tuple[Any, Any]:
        learner = algorithm.init(np.random.default_rng(0))
        game, views = env.reset(jax.random.key(0), 4)
        play = Play(game, views, {TEAM: algorithm.carry(learner, 4)})
        _, seen, _ = collect(
            env, loop.algorithms, {TEAM: learner}, play, jax.random.key(1), clock(), 8
        )
        memory = algorithm.remember(algorithm.memory(learner, loop.share), seen[TEAM])
        learner, batch, _ = algorithm.prepare(learner, memory, jax.random.key(2), clock())
        return learner, batch

    learner, batch = call(whole)
    assert 0 < batch.weight.mean() < 1  # some are dead
    return algorithm, learner, batch


@cache
def happo() -> tuple[Any, Any, Any]:
    env = make("test/mortal", n=3, length=6)
    return prepared(build("happo", env, **TINY, **EPOCHS), env)


@cache
def turn() -> Any:
    """`learner, batch, factor, owner -> learner, factor` of one turn."""
    algorithm, _, _ = happo()

    def whole(learner: Any, batch: Any, factor: Array, owner: Array) -> tuple[Any, Array]:
        return algorithm.turn(batch, jax.random.key(3), clock(), (learner, factor), owner)[0]

    return jax.jit(on_devices(whole))


def nobody(batch: Any) -> np.ndarray:
    return np.ones((*batch.weight.shape[:2], 1), np.float32)


def test_the_others_stand_still_during_a_turn():
    """To the bit, their optimisers and step counts too."""
    _, learner, batch = happo()
    after, _ = jax.device_get(turn()(learner, batch, nobody(batch), 1))
    before = (learner.params["actor"], learner.opt["actor"])
    moved = (after.params["actor"], after.opt["actor"])
    for other in (0, 2):
        assert bits(at(moved, other)) == bits(at(before, other))
    pairs = zip(jax.tree.leaves(at(moved, 1)), jax.tree.leaves(at(before, 1)), strict=True)
    assert all(not np.array_equal(new, old) for new, old in pairs)
    steps = after.opt["actor"][1].count
    assert steps.tolist() == [0, EPOCHS["epochs"] * EPOCHS["minibatches"], 0]
    assert bits(after.params["critic"]) == bits(learner.params["critic"])


def test_the_factor_is_the_product_of_the_ratios_of_those_before():
    algorithm, learner, batch = happo()

    def log_prob(actor: Any) -> Array:
        dist, _, _ = algorithm.policy(actor, batch.context, at(batch.actor_carry, 0), clock())
        return dist.log_prob(batch.record.raw)

    factor = nobody(batch)
    expected = np.ones(batch.weight.shape[:2])
    for owner in (2, 0):
        learner, factor = jax.device_get(turn()(learner, batch, factor, owner))
        ratio = np.exp(call(log_prob, learner.params["actor"]) - batch.record.log_prob)[..., owner]
        expected *= np.where(batch.weight[..., owner] > 0, ratio, 1.0)
    assert np.abs(expected - 1).max() > 0.01
    np.testing.assert_allclose(factor[..., 0], expected, rtol=1e-5)
    np.testing.assert_array_equal(factor[batch.weight[..., [0, 2]].sum(-1) == 0], 1.0)


def test_the_advantage_of_a_turn_is_multiplied_by_the_factor():
    _, learner, batch = happo()
    factor = np.random.default_rng(0).uniform(0.5, 2.0, nobody(batch).shape).astype(np.float32)
    ours, _ = turn()(learner, batch, factor, 0)
    multiplied = batch._replace(advantage=batch.advantage * factor)
    theirs, _ = turn()(learner, multiplied, nobody(batch), 0)
    plain, _ = turn()(learner, batch, nobody(batch), 0)
    assert bits(ours) == bits(theirs) != bits(plain)


def test_devices_agree_on_the_order():
    algorithm, learner, batch = happo()
    batch = jax.tree.map(jnp.asarray, batch)

    def improved(key: Array) -> Any:
        own = jax.random.wrap_key_data(key[0])
        after, _ = algorithm.improve(learner, batch, own, clock())
        return jax.tree.map(lambda x: x[None], after)

    improve = jax.jit(on_devices(improved, 2, OWN, OWN))
    for seed in range(4):
        keys = jax.random.key_data(jax.random.split(jax.random.key(seed), 2))
        both = jax.device_get(improve(keys))
        assert bits(at(both, 0)) == bits(at(both, 1))


ALONE = make("test/identity", n=1, length=5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "env", "other", "settings"),
    [
        ("happo", ALONE, "ppo", {}),
        ("haa2c", ALONE, "a2c", {}),
        ("happo", mortal(), "mappo", {"sharing": "shared"}),
        ("haa2c", mortal(), "maa2c", {"sharing": "shared"}),
    ],
)
def test_trap_30_of_one_turn_it_is_the_plain_one_or_its_central_form(name, env, other, settings):
    """Of one agent whose state is its observation, and of agents that share one actor."""
    learners = []
    for kind in (name, other):
        algorithm = build(kind, env, **TINY, **settings)
        loop = Loop(env, {TEAM: algorithm}, games=4, window=8, steps=1000)
        learners.append(run(loop, 3)[0].learners[TEAM])
    assert_close(*learners, 1e-6)


def test_agents_that_share_an_actor_take_their_turn_together():
    algorithm = build("happo", make("test/mortal", n=3, length=6), sharing="0,0,1", **TINY)
    learner = algorithm.init(np.random.default_rng(0))
    assert {len(leaf) for leaf in jax.tree.leaves(learner.opt["actor"])} == {2}
    assert {len(leaf) for leaf in jax.tree.leaves(learner.params["critic"])} == {1}


def test_a_torso_without_an_axis_of_owners_is_refused(monkeypatch):
    algorithm = build("happo", mortal(), **TINY)
    torso = algorithm.torso
    monkeypatch.setattr(algorithm, "torso", lambda *x, **y: (torso(*x, **y), jnp.zeros(7)))
    with pytest.raises(ShoalError, match="without an axis of owners"):
        algorithm.init(np.random.default_rng(0))

"""MADDPG's policy ensembles: several policies of each agent, one drawn for every episode."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import OFF, TEAM, TINY, assert_close, build, call, clock, mortal, studied, traced

from shoal.algorithms.off_policy import gradients
from shoal.engine.loop import Loop
from shoal.envs import make
from shoal.errors import ShoalError

MANY = TINY | OFF | {"policies": 3}
REAL = make("test/continuous_identity", n=2, length=5)


def program(**settings: Any) -> str:
    """An iteration as the compiler sees it."""
    env = mortal()
    loop = Loop(env, {TEAM: build("maddpg", env, **(TINY | OFF | settings))}, 4, 10, 1000)
    return str(jax.make_jaxpr(loop.program(1))(loop.template(0)))


def test_one_policy_is_the_plain_algorithm():
    assert program(policies=1) == program() != program(policies=2)


@pytest.mark.parametrize("name", ["ddpg", "maddpg", "matd3", "facmac"])
def test_it_fits_the_family(name):
    for torso, sharing, env in (("gru", "own", mortal()), ("mlp", "shared", REAL)):
        assert "actor_loss" in traced(name, torso, sharing, env, policies=2)
    with pytest.raises(ShoalError, match="one policy each: set policies to 1"):
        build("hatd3", mortal(), policies=2)


def watch(algorithm: Any, learner: Any, view: Any, carry: Any) -> Any:
    """What every policy would do."""
    members = learner.params["actor"].members
    context = algorithm.context(learner, view, carry)
    plain = build("ddpg", mortal(), **TINY | OFF)
    each = []
    for k in range(3):
        one = jax.tree.map(lambda leaf, k=k: leaf[k], members)
        hidden = jax.tree.map(lambda leaf, k=k: leaf[:, k], carry.hidden[0])
        each.append(plain.greedy(plain.policy(one, context, hidden)[0])[0])
    return jnp.stack(each)


@pytest.mark.slow
def test_an_episode_is_played_with_one_policy_and_another_draws_anew():
    """Each agent draws its own; the replay keeps which."""
    env = mortal()
    algorithm = build("ddpg", env, torso="gru", **MANY)
    learner = algorithm.init(np.random.default_rng(0))
    act = jax.jit(algorithm.act, static_argnums=5)
    game, views = env.reset(jax.random.key(0), 64)
    carry = algorithm.carry(learner, 64)
    whiches, firsts = [], []
    for step in range(9):
        view = views[TEAM]
        decision = act(learner, jax.random.key(step), view, carry, clock(), True)
        each = watch(algorithm, learner, view, decision.carry._replace(hidden=carry.hidden))
        expected = np.take_along_axis(
            np.asarray(each), np.asarray(decision.record)[None, ..., None], 0
        )
        np.testing.assert_array_equal(decision.action, expected[0].argmax(-1))
        whiches.append(np.asarray(decision.record))
        firsts.append(np.asarray(view.first))
        carry = decision.carry
        game, views = env.step(jax.random.key(100 + step), game, {TEAM: decision.action})
    for before, which, first in zip(whiches, whiches[1:], firsts[1:], strict=False):
        np.testing.assert_array_equal(before[~first], which[~first])
    opened = int(np.argmax([first.all() for first in firsts[1:]])) + 1
    assert (whiches[0] != whiches[opened]).any()
    assert set(whiches[0].ravel().tolist()) == {0, 1, 2}
    assert (whiches[0][:, 0] != whiches[0][:, 1]).any()


def test_the_replay_gives_back_which_policy_acted():
    seen = studied("maddpg", policies=3)
    which = np.asarray(seen.batch.context.which)
    number = seen.drawn.slot + 1 + np.arange(6)[:, None]
    played = np.asarray(seen.played.record)[number, seen.drawn.game]
    np.testing.assert_array_equal(which[:-1], played)
    np.testing.assert_array_equal(which[-1], which[-2])
    assert set(which.ravel().tolist()) == {0, 1, 2}


def test_a_policy_learns_from_what_it_played_itself():
    """As the plain actor would from those transitions alone."""
    seen = studied("maddpg", policies=3)
    algorithm = seen.algorithm
    plain = build("maddpg", mortal(), **TINY | OFF)
    which = seen.batch.context.which[:-1]

    def ours(learner: Any) -> Any:
        actor = {"actor": learner.params["actor"]}
        return gradients(algorithm.actor_loss, actor, learner, seen.batch, jax.random.key(0))[0]

    def alone(learner: Any, k: int) -> Any:
        one = jax.tree.map(lambda leaf: leaf[k], learner.params["actor"].members)
        batch = seen.batch._replace(actor_weight=seen.batch.actor_weight * (which == k))
        return gradients(plain.actor_loss, {"actor": one}, learner, batch, jax.random.key(0))[0]

    whole, *each = call(
        lambda learner: (ours(learner), *(alone(learner, k) for k in range(3))), seen.learner
    )
    for k, one in enumerate(each):
        mine = jax.tree.map(lambda leaf, k=k: leaf[k], whole["actor"].members)
        assert_close(mine, one["actor"], 1e-5)
        assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(mine)) > 0

"""EMAX: several utility nets of each agent, in every algorithm of the value family."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import (
    OFF,
    TEAM,
    TINY,
    VALUE,
    assert_close,
    build,
    call,
    clock,
    mortal,
    run,
    studied,
    traced,
)

from shoal.algorithms.off_policy import gradients
from shoal.engine.loop import Loop
from shoal.errors import ShoalError

MANY = TINY | OFF | {"ensemble": 3, "uncertainty": 0.7}


def program(name: str, **settings: Any) -> str:
    """An iteration as the compiler sees it."""
    env = mortal()
    algorithm = build(name, env, **(TINY | OFF | settings))
    loop = Loop(env, {TEAM: algorithm}, games=4, window=10, steps=1000)
    learners = {TEAM: algorithm.init(np.random.default_rng(0))}
    state = jax.eval_shape(loop._open_all, learners, jax.random.key(0))
    return str(jax.make_jaxpr(loop.program(1))(state))


def test_one_net_is_the_plain_algorithm():
    assert program("qmix", ensemble=1, uncertainty=0.7) == program("qmix")
    assert program("qmix", ensemble=2, uncertainty=0.7) != program("qmix")


@pytest.mark.parametrize("name", VALUE)
def test_it_fits_every_member(name):
    """Nothing is compiled: shapes agree, and a state stays the shape it was."""
    metrics = traced(name, "gru", "own", mortal(), ensemble=2)
    assert {"loss", "q", "updates"} <= set(metrics)


@pytest.mark.slow
def test_training_moves_every_net_differently():
    env = mortal()
    algorithm = build("qmix", env, torso="gru", **MANY)
    before = algorithm.init(np.random.default_rng(0))
    state, metrics = run(Loop(env, {TEAM: algorithm}, games=4, window=10, steps=1000), 2)
    learner = state.learners[TEAM]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((learner, metrics)))
    for now, then in zip(
        jax.tree.leaves(learner.params["agents"]),
        jax.tree.leaves(before.params["agents"]),
        strict=True,
    ):
        steps = np.asarray(now - then)
        assert all(np.abs(step).max() > 0 for step in steps) and now.shape[0] == 3
        assert not np.array_equal(steps[0], steps[1])


@pytest.mark.slow
def test_training_follows_the_bound_and_evaluation_the_vote():
    env = mortal()
    algorithm = build("dqn", env, **MANY, epsilon=0.0, epsilon_end=0.0)
    learner = algorithm.init(np.random.default_rng(0))
    view = env.reset(jax.random.key(0), 64)[1][TEAM]
    carry = algorithm.carry(learner, 64)
    q, _ = algorithm.utilities(
        learner.params["agents"], algorithm.context(learner, view, carry), carry.hidden
    )
    q, legal = np.asarray(q[0]), np.asarray(view.legal)

    def act(greedy: bool) -> Any:
        return algorithm.act(learner, jax.random.key(1), view, carry, clock(), greedy).action

    bound = np.where(legal, q.mean(0) + 0.7 * q.std(0), -np.inf)
    np.testing.assert_array_equal(act(greedy=False), bound.argmax(-1))
    votes = np.where(legal, q, -np.inf).argmax(-1)
    for place in np.ndindex(64, 2):
        count = np.bincount(votes[:, *place], minlength=3)
        assert count[act(greedy=True)[place]] == count.max()
    assert (np.where(legal, q.mean(0), -np.inf).argmax(-1) != bound.argmax(-1)).any()


@pytest.mark.parametrize("name", ["dqn", "vdn"])
def test_every_net_regresses_to_the_mean_of_all(name):
    """r + γ · mean over target nets, at the best legal action of the online nets' mean."""
    seen = studied(name, ensemble=3)
    algorithm = build(name, mortal(), **MANY)
    target = jax.tree.map(lambda x: x * 0.7 + 0.1, seen.learner.target)
    learner = seen.learner._replace(target=target)

    def utilities(nets: dict) -> Any:
        return algorithm.replayed(nets["agents"], seen.batch)

    algorithm.regression = lambda q, target, *_: (q, (target, jnp.zeros(())))
    one = jax.tree.map(lambda x: x[1], learner.params["agents"].members)
    online, follower, (q, (target, _)) = call(
        lambda learner: (
            utilities(learner.params),
            utilities(learner.target),
            algorithm.losses({**learner.params, "agents": one}, learner, seen.batch),
        ),
        learner,
    )
    view, window = jax.tree.map(np.asarray, (seen.batch.window.view, seen.batch.window))
    best = np.where(view.legal, online.mean(1), -np.inf).argmax(-1)[..., None]
    ahead = np.take_along_axis(follower.mean(1), best, -1)[..., 0]
    own = np.take_along_axis(online[:-1, 1], window.action[..., None], -1)[..., 0]
    reward, discount = np.asarray(seen.batch.reward), np.asarray(seen.batch.discount)
    if name == "vdn":
        ahead, own = ((x * view.alive[: len(x)]).sum(-1, keepdims=True) for x in (ahead, own))
        reward, discount = reward[..., :1], discount[..., :1]
    expected = np.where(window.valid, reward + 0.99 * discount * ahead[1:], ahead[:-1])
    np.testing.assert_allclose(q, own, atol=1e-5)
    np.testing.assert_allclose(target, expected, rtol=1e-4, atol=1e-5)


def test_each_net_learns_from_its_own_sample_of_the_windows():
    """Gradients are those of the nets one by one, every window as often as it was drawn.

    Not a share of them: Adam's ε would then slow down nets whose gradients are small.
    """
    seen = studied("qmix", ensemble=3)
    algorithm = seen.algorithm
    key = jax.random.key(3)

    def together(learner: Any) -> Any:
        each = lambda *args: algorithm.of_each(algorithm.losses, key, *args)  # noqa: E731
        return gradients(each, learner.params, learner, seen.batch)[0]

    def alone(learner: Any, k: int) -> Any:
        drawn = jax.random.randint(key, (3, 8), 0, 8)[k]
        times = jnp.stack([(drawn == window).sum() for window in range(8)])
        batch = seen.batch._replace(importance=seen.batch.importance * times)
        member = jax.tree.map(lambda x: x[k], learner.params["agents"].members)
        params = {**learner.params, "agents": member}
        return gradients(algorithm.losses, params, learner, batch)[0]

    whole, *parts = call(
        lambda learner: (together(learner), *(alone(learner, k) for k in range(3))), seen.learner
    )
    for k, part in enumerate(parts):
        own = jax.tree.map(lambda x, k=k: x[k], whole["agents"].members)
        assert_close(own, part["agents"], 1e-4)
    mixed = jax.tree.map(lambda *grads: sum(grads), *(part["mixer"] for part in parts))
    assert_close(whole["mixer"], mixed, 1e-4)


def test_sizes_that_mean_nothing_are_refused():
    for options in ({"ensemble": 0}, {"ensemble": 101}, {"ensemble": 2, "uncertainty": -1.0}):
        with pytest.raises(ShoalError):
            build("vdn", mortal(), **options)

"""FACMAC: the mixer, and the gradient through all agents' actions."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import OFF, TEAM, TINY, bits, build, call, run, studied

from shoal.engine.loop import Loop
from shoal.envs import make

REAL = make("test/continuous_identity", n=2, length=5)


@pytest.mark.slow
def test_trap_30_of_one_agent_whose_value_is_added_it_is_ddpg():
    """To the bit."""
    env = make("test/continuous_identity", n=1, length=5)
    learners = []
    for name, settings in (("facmac", {"mix": "sum"}), ("ddpg", {"reward": "mean"})):
        algorithm = build(name, env, **TINY, **OFF, **settings)
        loop = Loop(env, {TEAM: algorithm}, games=4, window=8, steps=1000)
        learners.append(run(loop, 3)[0].learners[TEAM])
    assert bits(learners[0]) == bits(learners[1])


@pytest.mark.parametrize(("mix", "joint"), [("sum", False), ("monotone", True), ("free", True)])
def test_an_actors_gradient_depends_on_what_the_others_would_do_now(mix, joint):
    """Through the mixer: a sum tells nothing of the others."""
    seen = studied("facmac", REAL, sharing="own", mix=mix)
    key = jax.random.key(0)

    def slope(actor: Any) -> Any:
        losses = seen.algorithm.actor_loss
        return jax.grad(lambda a: losses({"actor": a}, seen.learner, seen.batch, key)[0])(actor)

    actor = jax.tree.map(jnp.asarray, seen.learner.params["actor"])
    other = jax.tree.map(lambda x: x.at[1].add(0.5), actor)
    ours, theirs = call(lambda a, b: (slope(a), slope(b)), actor, other)
    away = max(
        np.abs(a[0] - b[0]).max()
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True)
    )
    assert (away > 1e-7) == joint


def test_the_dead_add_nothing_to_the_teams_value():
    seen = studied("facmac", mix="sum")
    context = seen.algorithm.played(seen.batch, seen.batch.window.rivals)
    alive = np.asarray(context.view.alive)
    local = seen.learner.params["critic"][0].local

    def values() -> Any:
        each = super(type(seen.algorithm), seen.algorithm).q((local,), context)[0]
        return seen.algorithm.q(seen.learner.params["critic"], context)[0], each

    team, each = call(values)
    assert not alive.all()
    np.testing.assert_allclose(team[..., 0, 0], (each[..., 0] * alive).sum(-1), atol=1e-6)

"""The pathwise family in turn: HATD3 and HASAC."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from helpers import OFF, TEAM, TINY, assert_close, bits, build, call, clock, quick, run, studied

from shoal.engine.loop import Loop
from shoal.envs import make
from shoal.learning.trees import at, row
from shoal.nets.inputs import as_input
from shoal.types import Box

REAL = make("test/continuous_identity", n=2, length=5)
ONE = {
    "discrete": make("test/identity", n=1, length=5),
    "continuous": make("test/continuous_identity", n=1, length=5),
}


def after_turn(seen: Any, learner: Any, owner: int) -> Any:
    """The learner after one owner's turn."""
    turn = seen.algorithm.turn
    return call(lambda one: turn(seen.batch, jax.random.key(0), clock(), one, owner)[0], learner)


@pytest.mark.parametrize("name", ["hatd3", "hasac"])
def test_the_others_and_the_critic_stand_still_during_a_turn(name):
    """To the bit, their optimisers, step counts and temperatures too."""
    seen = studied(name, REAL)
    before = seen.learner
    after = after_turn(seen, before, 1)
    for part in set(before.params) - {"critic"}:
        moved, kept = ((one.params[part], one.opt[part]) for one in (after, before))
        assert bits(at(moved, 0)) == bits(at(kept, 0))
        assert bits(at(moved, 1)) != bits(at(kept, 1))
        assert after.opt[part][1].count.tolist() == [0, 1]
    assert bits(after.params["critic"]) == bits(before.params["critic"])


def test_those_who_learnt_before_act_by_their_new_policies():
    """What the critic is asked about in a turn is what all would do now, not what was stored."""
    seen = studied("hatd3", REAL)
    learner = after_turn(seen, seen.learner, 0)
    algorithm = build("hatd3", REAL, **TINY, **OFF)
    asked = []
    q = algorithm.q
    algorithm.q = lambda critics, context: asked.append(context.action) or q(critics, context)
    rows = {"actor": row(learner.params["actor"], np.int32(1))}
    algorithm.actor_alone(np.int32(1), rows, learner, seen.batch, jax.random.key(0))

    @jax.jit
    def acts(one: Any, view: Any) -> Any:
        carry = algorithm.carry(one, len(view.first))
        action = algorithm.act(one, jax.random.key(0), view, carry, clock(), True).action
        return as_input(action, algorithm.spec)

    views = [jax.tree.map(lambda x, t=t: x[t], seen.batch.window.view) for t in range(6)]
    now = np.stack([acts(learner, view) for view in views])
    earlier = np.stack([acts(seen.learner, view) for view in views])
    np.testing.assert_allclose(asked[0], now, atol=1e-5)
    assert np.abs(now - earlier)[..., 0, :].max() > 1e-3
    assert np.abs(now - as_input(seen.batch.window.action, algorithm.spec)).max() > 0.1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "other", "space"),
    [
        ("hatd3", "td3", "continuous"),
        ("hasac", "sac", "continuous"),
        ("hasac", "masac", "discrete"),
    ],
)
def test_trap_30_of_one_agent_it_is_the_plain_one(name, other, space):
    """Whose state is its observation; SAC's discrete critic sees both if it is central."""
    learners = []
    for kind in (name, other):
        algorithm = build(kind, ONE[space], reward="mean", **TINY, **OFF)
        loop = Loop(ONE[space], {TEAM: algorithm}, games=4, window=8, steps=1000)
        learners.append(run(loop, 3)[0].learners[TEAM])
    assert_close(*learners, 1e-5)


@pytest.mark.parametrize("name", quick(["hatrpo", "hatd3", "hasac", "facmac", "haa2c"], 2))
def test_agents_of_different_spaces_train_and_what_pads_them_stays(name):
    """The speaker sees 3 numbers and has 3 words, the listener sees 11 and has 5 moves."""
    continuous = Box in type(build(name, REAL)).spaces and name in ("hatd3", "hasac", "facmac")
    env = make("mpe/simple_speaker_listener", continuous_actions=continuous)
    off = OFF if continuous else {"minibatches": 1}
    algorithm = build(name, env, sharing="own", **TINY, **off)
    before = algorithm.init(np.random.default_rng(0)).params["actor"]
    state, metrics = run(Loop(env, {TEAM: algorithm}, games=4, window=10, steps=1000), 2)
    after = state.learners[TEAM].params["actor"]
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((after, metrics)))
    spec = env.teams[TEAM]
    assert spec.obs_sizes == (3, 11)
    change = np.abs(after.torso.layers[0].weight - before.torso.layers[0].weight).sum(-1)
    for agent, size in enumerate(spec.obs_sizes):
        assert change[agent, :size].any() and not change[agent, size:].any()
    head = jax.tree.leaves(jax.tree.map(np.subtract, after.head, before.head))[0]
    for agent, size in enumerate(spec.action_sizes):
        assert head[agent, :, :size].any() and not head[agent, :, size:].any()

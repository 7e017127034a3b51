"""Torsos that communicate, inside the families: which nets do, and that all of them can learn."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from helpers import TEAM, build, mortal, opened, quick

from shoal.algorithms import find
from shoal.engine.loop import Loop
from shoal.nets.communication import Communicating
from shoal.types import Clock, View

CASES: dict[str, tuple[str, dict[str, Any], bool]] = {  # torso, options, whether critics hear
    "mappo": ("tarmac", {}, False),
    "ppo": ("transformer", {"share_torso": True}, False),
    "mfac": ("commnet", {"sharing": "own"}, True),
    "happo": ("ic3net", {}, False),
    "pqn_vdn": ("ic3net", {"rounds": 2}, False),
    "qmix": ("commnet", {}, False),
    "sac": ("tarmac", {}, False),
    "maddpg": ("transformer", {}, False),
}


@pytest.mark.parametrize("name", quick(CASES, 3))
def test_every_family_can_communicate(name: str):
    """Traced, not compiled: who acts communicates, a critic only if it sees what actors do."""
    torso, options, critic_hears = CASES[name]
    env = mortal()
    options = options | {"hidden": 8, "torso": torso}
    if hasattr(find(name).Config, "warmup"):
        options |= {"warmup": 0, "batch": 8, "length": 6}
    learner = build(name, env, **options)
    assert learner.sees_mates
    loop = Loop(env, {TEAM: learner}, games=4, window=8, steps=1000)
    before = loop.template(0)
    later, _ = jax.eval_shape(loop.program(1), before)
    assert jax.tree.structure(before.learners) == jax.tree.structure(later.learners)
    params = before.learners[TEAM].params
    assert isinstance(params[learner.acts].torso, Communicating)
    critic = jax.tree.leaves(params.get("critic"), is_leaf=lambda x: isinstance(x, Communicating))
    assert any(isinstance(leaf, Communicating) for leaf in critic) == critic_hears


def test_an_action_depends_on_what_living_teammates_see():
    env = mortal()
    ppo = build("ppo", env, torso="commnet", hidden=8, layers=1)
    learner = ppo.init(np.random.default_rng(0))
    clock = Clock(np.float32(0), np.float32(0))  # type: ignore[arg-type]

    @jax.jit
    def logits(view: View) -> Any:
        return ppo.logits(learner, view, ppo.carry(learner, 2), clock)[:, 0]

    _, views = opened(env, 2)
    view = views[TEAM]
    other = view._replace(obs=view.obs.at[:, 1].add(1.0))
    assert (logits(view) != logits(other)).any()
    dead = view.alive.at[:, 1].set(False)
    assert (logits(view._replace(alive=dead)) == logits(other._replace(alive=dead))).all()

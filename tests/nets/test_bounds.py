"""Bounds of real actions: each agent's own, and those that leave no choice."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from helpers import OFF, PATHWISE, TEAM, TINY, build, call, clock, decided, opened, run
from jax import Array

from shoal.algorithms import random_policy
from shoal.engine.loop import Loop
from shoal.envs.adapters.spaces import action_space, writer
from shoal.envs.adapters.to_pettingzoo import _done
from shoal.envs.jax.options import widest
from shoal.envs.native.probes import ContinuousIdentity, Quiz
from shoal.nets.inputs import as_action, as_input
from shoal.types import Box, Spec, side_by_side

# the second number is always 0.5
LOW, HIGH = ((-1.0, 0.5), (-100.0, 0.5)), ((1.0, 0.5), (300.0, 0.5))


@dataclass(frozen=True)
class Unequal(ContinuousIdentity):
    """A number in [-1,1] to be told: agent_0 in these units, agent_1 in [-100,300]."""

    @cached_property
    def teams(self) -> dict[str, Spec]:
        return self.line_up({TEAM: Spec(("agent_0", "agent_1"), 1, 2, Box(LOW, HIGH))})

    def advance(self, key: Array, world: Quiz, actions: dict[str, Array]) -> Quiz:
        said = actions[TEAM][:, 0]
        return super().advance(
            key, world, {TEAM: jnp.stack([said[0], (said[1] - 100) / 200])[:, None]}
        )


GAME = Unequal(length=5)
SPEC = GAME.teams[TEAM]
MEMBERS = [
    *((name, {}) for name in PATHWISE),
    ("ppo", {}),
    ("ppo", {"squash": True}),
    ("mappo", {"last_action": True}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "settings"), MEMBERS, ids=str)
def test_trap_37_a_dimension_without_width_is_held_and_every_agent_has_its_own_bounds(
    name, settings
):
    algorithm = build(name, GAME, **TINY, **(OFF if name in PATHWISE else {}), **settings)
    state, metrics = run(Loop(GAME, {TEAM: algorithm}, games=4, window=10, steps=1000), 3)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves((state.learners, metrics)))
    _, view = opened(GAME, 200)
    learner = state.learners[TEAM]
    key = jax.random.key(1)
    decision = call(
        lambda one: algorithm.act(one, key, view[TEAM], algorithm.carry(one, 200), clock(), False),
        learner,
    )
    assert (decision.action >= np.array(LOW) - 1e-4).all() and (
        decision.action <= np.array(HIGH) + 1e-4
    ).all()
    assert np.ptp(decision.action[:, 0, 0]) > 0.5 and np.ptp(decision.action[:, 1, 0]) > 100
    assert not np.asarray(as_input(decision.action, SPEC))[..., 1].any()


def test_trap_37_chance_draws_anywhere_within_each_agents_own_bounds():
    _, view = opened(GAME, 4000)
    action = np.asarray(
        decided(random_policy(SPEC), (), jax.random.key(1), view[TEAM], (), clock(), False).action
    )
    unit = np.asarray(as_input(action, SPEC))
    np.testing.assert_allclose(unit[..., 0].std(0), 3**-0.5, atol=0.02)
    assert np.abs(unit).max() <= 1.0 + 1e-5 and (action[..., 1] == 0.5).all()
    np.testing.assert_allclose(as_action(unit, SPEC), action, rtol=1e-4, atol=1e-4)


def test_trap_37_bounds_too_far_apart_to_subtract_stay_finite():
    spec = Spec(("a",), 1, 1, Box((-3e38,), (3e38,)))
    edges = np.array([[-3e38], [0.0], [3e38]], np.float32)
    assert np.isfinite(as_input(edges, spec)).all()
    np.testing.assert_allclose(as_action(jnp.array([[-1.0], [0.0], [1.0]]), spec), edges, rtol=1e-6)


def test_trap_37_a_team_of_unlike_boxes():
    """One for all where they agree on the dimensions they have."""
    wide, narrow, short = (
        Box((-1.0, -5.0), (1.0, 5.0)),
        Box((-0.1, -5.0), (0.1, 5.0)),
        Box((-1.0,), (1.0,)),
    )
    assert side_by_side([wide, short]) == wide and side_by_side([wide, short]).of(1) == wide
    both = side_by_side([wide, narrow, short])
    assert (
        both == Box((wide.low, narrow.low, wide.low), (wide.high, narrow.high, wide.high))
        and both.size == 2
    )
    assert widest([wide, narrow], "game").of(1) == narrow
    ends = [np.array([box.low, box.high], np.float32) for box in (wide, narrow)]
    team = action_space("a", [writer(f"a_{i}", spaces.Box(*both)) for i, both in enumerate(ends)])
    assert isinstance(team, Box) and team.of(0) == wide
    np.testing.assert_allclose(team.of(1).low, narrow.low, rtol=1e-6)
    outside = _done(Spec(("a_0", "a_1"), 1, 1, team), 1)
    np.testing.assert_allclose(outside.low, narrow.low, rtol=1e-6)  # type: ignore[attr-defined]


def test_trap_37_bounds_survive_a_saved_spec_and_those_of_0_1_0_are_read():
    assert Spec.from_json(json.loads(json.dumps(SPEC.to_json()))) == SPEC
    old = {
        "agents": ["a"],
        "obs": 1,
        "state": 1,
        "action": {"Box": {"low": [-2.0, 1.0], "high": [5.0, 3.0]}},
    }
    assert (
        Spec.from_json(old).action
        == Box((-2.0, 1.0), (5.0, 3.0))
        == Spec.from_json(old).action.of(0)
    )

"""Policies that share a team: who plays which agent."""

from __future__ import annotations

import jax
import numpy as np
import pytest
from helpers import TEAM, TINY, build, clock, decided, opened

from shoal.algorithms.opponents.cast import Cast, CastPolicy
from shoal.envs import make

GAMES = 6
KEY = jax.random.key(0)


@pytest.mark.parametrize("seats", [(0, 1, 1), (1, 0, 1)])
def test_each_agent_acts_as_its_own_policy_decides(seats: tuple[int, ...]) -> None:
    game = make("mpe/simple_spread", max_cycles=5)
    policies = [build("ppo", game, torso=torso, **TINY) for torso in ("mlp", "gru")]
    parts = tuple(
        CastPolicy(policy.init(np.random.default_rng(seed)), clock())
        for seed, policy in enumerate(policies)
    )
    view = opened(game, GAMES)[1][TEAM]
    decisions = [
        decided(policy, part.weights, KEY, view, policy.carry(part.weights, GAMES), clock(), True)
        for policy, part in zip(policies, parts, strict=True)
    ]
    alone = [np.asarray(decision.action) for decision in decisions]
    assert (alone[0] != alone[1]).any(0).all(), "the policies agree about an agent"
    cast = Cast(game.teams[TEAM], policies, seats)
    decision = decided(cast, parts, KEY, view, cast.carry(parts, GAMES), clock(), True)
    wanted = np.stack([alone[seat][:, agent] for agent, seat in enumerate(seats)], 1)
    assert np.array_equal(decision.action, wanted)
    assert jax.tree.leaves(decision.carry)[0].shape[0] == GAMES

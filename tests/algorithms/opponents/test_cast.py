"""Policies that share a team: who plays which agent."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import TEAM, TINY, build, clock

from shoal.algorithms.opponents.cast import Cast, Part
from shoal.envs import make

GAMES = 6


@pytest.mark.parametrize("seats", [(0, 1, 1), (1, 0, 1)])
def test_each_agent_acts_as_its_own_policy_decides(seats: tuple[int, ...]) -> None:
    game = make("mpe/simple_spread", max_cycles=5)
    policies = [build("ppo", game, torso=torso, **TINY) for torso in ("mlp", "gru")]
    parts = tuple(
        Part(policy.init(np.random.default_rng(seed)), clock())
        for seed, policy in enumerate(policies)
    )
    view = game.reset(jax.random.key(0), GAMES)[1][TEAM]
    alone = [
        policy.act(
            part.weights, jax.random.key(0), view, policy.carry(part.weights, GAMES), clock(), True
        ).action
        for policy, part in zip(policies, parts, strict=True)
    ]
    assert (alone[0] != alone[1]).any(0).all(), "the policies agree about an agent"
    cast = Cast(game.teams[TEAM], policies, seats)
    decision = cast.act(parts, jax.random.key(0), view, cast.carry(parts, GAMES), clock(), True)
    wanted = jnp.stack([alone[seat][:, agent] for agent, seat in enumerate(seats)], 1)
    assert np.array_equal(decision.action, wanted)
    assert jax.tree.leaves(decision.carry)[0].shape[0] == GAMES

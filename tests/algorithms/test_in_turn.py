"""A member whose agents decide one after another. Those of HAPPO learn so."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from helpers import TEAM, TINY, mortal, run
from jax import Array

from shoal.algorithms.ppo import PPO
from shoal.engine.loop import Loop
from shoal.nets.inputs import Context, InputPart, as_input
from shoal.types import Clock, Spec


def _earlier(context: Context, spec: Spec) -> Array:
    """`[T,B,N,N·A]` what the agents before each one chose."""
    before = jnp.tri(spec.n, k=-1)[:, :, None]
    if context.action is None:
        return jnp.zeros((*context.view.alive.shape, spec.n * spec.action.size))
    seen = context.action[..., None, :, :] * before
    return seen.reshape(*context.view.alive.shape, -1)


EARLIER = InputPart(lambda spec: spec.n * spec.action.size, _earlier)


class InTurn(PPO):
    """PPO whose agents see what those before them chose."""

    name = "in-turn"

    def __init__(self, config: Any, spec: Spec):
        super().__init__(config, spec)
        self.inputs["actor"] = (*self.inputs["actor"], EARLIER)

    def decide(
        self, actor: Any, context: Context, carry: Any, clock: Clock, key: Array, greedy: bool
    ) -> tuple[Any, Array, Any]:
        raw = jnp.zeros(context.view.alive.shape, jnp.int32)
        for agent in range(self.spec.n):
            known = self.acted(as_input(raw, self.spec), context.view)
            dist, drawn, hidden = super().decide(
                actor, context._replace(action=known), carry, clock, key, greedy
            )
            raw = raw.at[..., agent].set(drawn[..., agent])
        known = self.acted(as_input(raw, self.spec), context.view)
        dist, _, hidden = self.policy(actor, context._replace(action=known), carry, clock)
        return dist, raw, hidden


def _played(kind: type[PPO]) -> tuple[Any, Any, Any]:
    """A window on the mortal game, the policy that learns from it, and its learner before."""
    env = mortal()
    algorithm = kind(kind.Config(**TINY, minibatches=1, epochs=1), env.teams[TEAM])
    loop = Loop(env, {TEAM: algorithm}, games=4, window=6, steps=1000)
    algorithm.learn = lambda learner, memory, key, clock: (  # type: ignore[method-assign]
        learner,
        memory._replace(window=()),
        {"window": memory.window},
    )
    state, metrics = run(loop, 1)
    window = jax.tree.map(lambda x: x[-1], metrics.learning[TEAM]["window"])
    return algorithm, state.learners[TEAM], window


def test_what_was_drawn_in_turn_is_evaluated_at_once() -> None:
    algorithm, learner, window = _played(InTurn)
    context, _ = algorithm._contexts(window)
    clock = Clock(np.float32(0), np.float32(0))  # type: ignore[arg-type]
    actor = learner.params["actor"]
    dist, _, _ = algorithm.policy(actor, context, window.carry.hidden, clock)
    alive = np.asarray(window.view.alive[:-1])
    again = np.asarray(dist.log_prob(window.record.raw))
    np.testing.assert_allclose(again[alive], window.record.log_prob[alive], atol=1e-5)
    # the second agent's policy does depend on what the first one chose
    blind, _, _ = algorithm.policy(actor, context._replace(action=None), window.carry.hidden, clock)
    other = np.asarray(blind.log_prob(window.record.raw))
    both = alive.all(-1)
    np.testing.assert_allclose(other[both][:, 0], again[both][:, 0], atol=1e-5)
    assert np.abs(other[both][:, 1] - again[both][:, 1]).max() > 1e-4


def test_it_learns() -> None:
    env = mortal()
    algorithm = InTurn(InTurn.Config(**TINY, minibatches=1, epochs=1), env.teams[TEAM])
    before = algorithm.init(np.random.default_rng(0)).params["actor"]
    state, _ = run(Loop(env, {TEAM: algorithm}, games=4, window=6, steps=1000), 2)
    after = state.learners[TEAM].params["actor"]
    changed = [
        not np.array_equal(old, new)
        for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True)
    ]
    assert all(changed) and all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(after))

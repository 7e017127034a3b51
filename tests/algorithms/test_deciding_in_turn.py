"""Members whose agents decide one after another. Those of HAPPO learn so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import TEAM, TINY, assert_close, build, mortal, run
from jax import Array

from shoal.algorithms.mat import MAT
from shoal.algorithms.ppo import PPO
from shoal.algorithms.sable import Sable
from shoal.engine.loop import Loop
from shoal.envs import Env, make
from shoal.envs.native.matrix import MatrixGame
from shoal.errors import ShoalError
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
    loop = Loop(env, {TEAM: algorithm}, games=4, window=10, steps=1000)
    algorithm.learn = lambda learner, memory, key, clock: (  # type: ignore[method-assign]
        learner,
        memory._replace(window=()),
        {"window": memory.window},
    )
    state, metrics = run(loop, 1)
    window = jax.tree.map(lambda x: x[-1], metrics.learning[TEAM]["window"])
    return algorithm, state.learners[TEAM], window


@pytest.mark.slow
@pytest.mark.parametrize("kind", [InTurn, MAT, Sable])
def test_what_was_drawn_in_turn_is_evaluated_at_once(kind: type[PPO]) -> None:
    """So the ratio is 1 before the first update, across an episode's end, with masks and deaths."""
    algorithm, learner, window = _played(kind)
    assert window.view.first[1:-1].any()
    context, _ = algorithm._contexts(window)
    clock = Clock(np.float32(0), np.float32(0))  # type: ignore[arg-type]
    actor = learner.params["actor"]
    dist, _, _ = algorithm.policy(actor, context, window.carry.hidden, clock)
    alive = np.asarray(window.view.alive[:-1])
    again = np.asarray(dist.log_prob(window.record.raw))
    np.testing.assert_allclose(again[alive], window.record.log_prob[alive], atol=1e-6)
    # the second agent's policy does depend on what the first one chose
    blind, _, _ = algorithm.policy(actor, context._replace(action=None), window.carry.hidden, clock)
    other = np.asarray(blind.log_prob(window.record.raw))
    first = np.asarray(window.view.first[:-1])
    both = alive.all(-1) & (first if algorithm.recurrent else True)  # without a memory of actions
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


# -- MAT and Sable ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "kind", "settings"),
    [
        (make("test/identity", n=1, length=5), Sable, {}),
        (mortal(), MAT, {"last_action": True}),
        (make("test/continuous_identity", n=2, length=5), Sable, {"torso": "gru"}),
    ],
)
def test_trap_30_without_blocks_they_are_ppo(env: Env, kind: type[PPO], settings: dict) -> None:
    """With one torso for actor and critic: the same draws, the same updates."""
    settings = TINY | {"reward": "mean", "share_torso": True, "minibatches": 2} | settings
    learners = []
    for member, more in ((PPO, {}), (kind, {"blocks": 0})):
        algorithm = member(member.Config(**settings, **more), env.teams[TEAM])
        loop = Loop(env, {TEAM: algorithm}, games=4, window=8, steps=1000)
        learners.append(jax.tree.leaves(run(loop, 2)[0].learners[TEAM]))
    assert_close(*learners, 1e-6)


def test_sable_without_memory_learns_from_single_steps_as_ppo_does() -> None:
    env = make("test/identity", n=1, length=5)
    for decay, recurrent in ((0.0, False), (0.5, True)):
        algorithm = build("sable", env, decay=decay, **TINY)
        assert algorithm.recurrent is recurrent
        carry = algorithm.carry(algorithm.init(np.random.default_rng(0)), 3)
        assert any(leaf.size for leaf in jax.tree.leaves(carry)) is recurrent


@dataclass(frozen=True)
class Different(MatrixGame):
    """Three agents who all observe the same earn 1 if they choose three different actions."""

    repetitions: int = 1
    sides = {TEAM: 3}

    def payoff(self) -> np.ndarray:
        joint = np.indices((3, 3, 3)).reshape(3, -1).T
        return np.array([len(set(row)) == 3 for row in joint.tolist()], float).reshape(3, 3, 3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PPO, MAT, Sable])
def test_agents_who_decide_in_turn_choose_what_is_left(kind: type[PPO]) -> None:
    """Agents alike who decide at once are right with 6 of 27 draws at best."""
    env: Any = Different()
    options = {"hidden": 16, "lr": 0.01, "agent_id": False, "entropy": 0.0, "minibatches": 1}
    algorithm = kind(kind.Config(**options), env.teams[TEAM])
    _, metrics = run(Loop(env, {TEAM: algorithm}, games=32, window=8, steps=10**5), 60)
    earned = float(metrics.returns[TEAM][-10:].sum() / metrics.episodes[-10:].sum())
    assert earned < 0.3 if kind is PPO else earned > 0.95


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"hidden": 10, "heads": 4}, "heads must divide hidden, 10, without rest: 4 do not"),
        ({"sharing": "own"}, "mat cannot have own parameters: set sharing to shared"),
        ({"blocks": -1}, "blocks must not be negative, not -1"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict, sentence: str) -> None:
    with pytest.raises(ShoalError, match=sentence):
        build("mat", mortal(), **settings)

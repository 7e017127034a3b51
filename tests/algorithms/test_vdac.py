"""VDAC: the team's value is a mix of the agents' own."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import TEAM, TINY, assert_close, build, mortal, on_devices, probe, run

from shoal.algorithms.vdac import Mixed
from shoal.engine.loop import Loop
from shoal.envs import make
from shoal.nets.inputs import Context


@pytest.mark.slow
def test_the_sum_of_one_agent_is_a2c():
    env = make("test/identity", n=1, length=5)
    learners = {}
    for name, settings in (("a2c", {}), ("vdac", {"mix": "sum"})):
        loop = Loop(
            env, {TEAM: build(name, env, **TINY, **settings)}, games=4, window=8, steps=1000
        )
        learners[name] = run(loop, 3)[0].learners[TEAM]
    ours, theirs = learners["vdac"], learners["a2c"]
    assert ours.params["critic"].mixer is None
    params = ours.params | {"critic": ours.params["critic"].local}
    assert_close((params, ours.scale), (theirs.params, theirs.scale), 1e-6)


def team_value(mix: str):
    """`values, alive -> [T,B]` the team's on the mortal game's window, the agents' own being what
    is given."""
    seen = probe("vdac").seen
    algorithm = build("vdac", mortal(), mix=mix, last_action=True, **TINY)
    critic = algorithm.init(np.random.default_rng(0)).params["critic"]
    context, _ = algorithm._contexts(seen.window)

    def call(values, alive):
        told = Mixed(lambda parts, carry, first: (values[..., None], carry), critic.mixer)  # type: ignore[arg-type]
        there = Context(context.view._replace(alive=alive), context.last)
        value, _ = algorithm.critic(told, there, seen.memory.carry)
        assert value.shape == (*alive.shape[:2], 1, 1)
        return value[..., 0, 0]

    return jax.jit(call), jax.jit(jax.grad(lambda *args: call(*args).sum())), context.view.alive


@pytest.mark.slow
@pytest.mark.parametrize("mix", ["sum", "mix"])
def test_the_mix_rises_with_every_living_agents_value_and_the_dead_add_nothing(mix):
    """Whatever a dead agent's critic says, the team's value is the same to the bit."""
    value, slope, alive = team_value(mix)
    own = np.random.default_rng(0).normal(size=alive.shape).astype(np.float32) * 3
    assert 0 < alive.mean() < 1
    rise = np.asarray(slope(own, alive))
    assert (rise[alive] >= 0).all() and (rise[alive] > 0).mean() > 0.9 and not rise[~alive].any()
    assert (value(own, alive) == value(np.where(alive, own, 99.0), alive)).all()
    assert np.abs(value(own, alive) - value(own, np.ones_like(alive))).max() > 1e-3
    if mix == "sum":
        np.testing.assert_allclose(value(own, alive), (own * alive).sum(-1), rtol=1e-5, atol=1e-5)


def test_the_advantage_is_the_teams():
    """r + γV′ − V, the same for all agents: with λ = 0 and the team's reward and discount."""
    seen = probe("vdac").seen
    settings = {"lam": 0.0, "normalise_advantage": False, "normalise_value": False}
    algorithm = build("vdac", mortal(), last_action=True, **settings, **TINY)

    def whole(learner, memory, clock):
        _, batch, _ = algorithm.prepare(learner, memory, jax.random.key(0), clock)
        return batch

    batch = jax.device_get(jax.jit(on_devices(whole))(seen.learner, seen.memory, seen.clock))
    window, team = seen.window, batch.value[..., 0]
    ahead = window.reward.mean(-1)[:-1] + 0.99 * window.discount.max(-1)[:-1] * team[1:]
    expected = np.broadcast_to(
        ((ahead - team[:-1]) * window.valid[:-1, :, 0])[..., None], batch.advantage[:-1].shape
    )
    np.testing.assert_allclose(batch.advantage[:-1], expected, atol=1e-5)
    assert np.abs(expected).max() > 0.1


def test_gradients_reach_the_mixer_through_the_critics():
    """Every layer of the nets that make its weights."""
    moment = probe("vdac").state.learners[TEAM].opt["critic"][1].mu
    assert all(np.asarray(leaf).any() for leaf in jax.tree.leaves(moment.mixer))


@pytest.mark.slow
def test_sharing_the_torso_as_in_the_paper_stays_finite():
    env = make("test/mortal", n=3, length=6)
    algorithm = build("vdac", env, share_torso=True, torso="gru", mix="sum", reward="sum", **TINY)
    state, metrics = run(Loop(env, {TEAM: algorithm}, games=4, window=8, steps=1000), 2)
    assert all(jnp.isfinite(leaf).all() for leaf in jax.tree.leaves((state.learners, metrics)))


@pytest.mark.parametrize(("mix", "sees"), [("mix", True), ("sum", False)])
def test_whoever_reads_the_state_says_so(mix, sees):
    """The host engine leaves out a state that nobody looks at."""
    assert build("vdac", make("test/mortal", n=2), mix=mix).sees_state == sees

"""HATRPO: an agent's step against the natural gradient by hand."""

from __future__ import annotations

from functools import cache
from typing import Any

import jax
import numpy as np
import pytest
from helpers import TEAM, bits, build, call, clock
from test_happo import prepared

from shoal.envs import make
from shoal.learning.trees import at
from shoal.nets.actor_critic import IdentityTorso

LOOSE = {"rounds": 50, "damping": 0.01, "max_kl": 0.02}


@cache
def linear(**settings: Any) -> tuple[Any, Any, Any]:
    """Softmax policies linear in what two agents see, their learner, and a window."""
    env = make("test/mortal", n=2, length=6)
    algorithm = build("hatrpo", env, hidden=env.teams[TEAM].obs, **LOOSE | settings)
    torso = algorithm.torso

    def bare(rng: Any, part: str, **more: Any) -> Any:
        return IdentityTorso() if part == "actor" else torso(rng, part, **more)

    algorithm.torso = bare  # type: ignore[method-assign]
    return prepared(algorithm, env)


def studied(algorithm: Any, learner: Any, batch: Any, owner: int) -> tuple[Any, Any]:
    """The learner after an owner's step, and the metrics."""
    mine = batch._replace(weight=batch.weight * (np.arange(2) == owner))
    return call(lambda: algorithm.study(learner, np.int32(owner), mine, jax.random.key(0), clock()))


def flat(algorithm: Any, learner: Any, owner: int) -> np.ndarray:
    """An owner's weights and bias as `[F+1,A]`."""
    head = learner.params["actor"].head.logits
    return np.concatenate([head.weight[owner], head.bias[owner][None]]).astype(float)


@pytest.mark.parametrize("owner", [0, 1])
def test_the_step_is_the_natural_gradient_within_the_trust_region(owner):
    """Σ w A ∇log π, through the inverse of Σ w (diag p − ppᵀ) ⊗ φφᵀ + damping."""
    algorithm, learner, batch = linear()
    after, metrics = studied(algorithm, learner, batch, owner)
    theta = flat(algorithm, learner, owner)
    weight = batch.weight[..., owner].ravel() / batch.weight[..., owner].sum()
    seen = np.asarray(batch.context.view.obs)[..., owner, :].reshape(len(weight), -1)
    phi = np.concatenate([seen, np.ones((len(weight), 1))], 1).astype(float)
    legal = np.asarray(batch.context.view.legal)[..., owner, :].reshape(len(weight), -1)
    p = np.exp(phi @ theta) * legal
    p /= np.maximum(p.sum(-1, keepdims=True), 1e-9)
    action = np.asarray(batch.record.raw)[..., owner].ravel()
    gain = (np.eye(3)[action] - p) * (weight * batch.advantage[..., owner].ravel())[:, None]
    slope = (phi.T @ gain).ravel()
    spread = np.einsum("ra,ab->rab", p, np.eye(3)) - p[:, :, None] * p[:, None, :]
    fisher = np.einsum("r,rf,rg,rab->fagb", weight, phi, phi, spread).reshape(slope.size, -1)
    curved = fisher + LOOSE["damping"] * np.eye(slope.size)
    solved = np.linalg.solve(curved, slope)
    step = solved * np.sqrt(2 * LOOSE["max_kl"] / (solved @ curved @ solved))
    moved = flat(algorithm, after, owner) - theta
    assert metrics["step"] > 0
    np.testing.assert_allclose(moved.ravel(), metrics["step"] * step, atol=2e-3 * abs(step).max())
    q = np.exp(phi @ (theta + moved)) * legal
    q /= np.maximum(q.sum(-1, keepdims=True), 1e-9)
    logs = np.log(np.where(p > 0, p, 1.0)) - np.log(np.where(q > 0, q, 1.0))
    kl = (weight[:, None] * p * logs).sum()
    assert 0 < kl <= LOOSE["max_kl"] * 1.001
    assert metrics["kl"] == pytest.approx(kl, rel=1e-2)
    other = 1 - owner
    assert bits(at(after.params["actor"], other)) == bits(at(learner.params["actor"], other))


def test_a_step_that_is_never_accepted_is_not_taken():
    """Of a gain that no step brings: more than all that was promised."""
    algorithm, learner, batch = linear(accept=1.0, tries=1, max_kl=5.0)
    after, metrics = studied(algorithm, learner, batch, 0)
    assert metrics["step"] == 0 and metrics["kl"] == pytest.approx(0, abs=1e-6)
    assert bits(after.params) == bits(learner.params)


def test_actors_have_no_optimiser():
    _, learner, _ = linear()
    assert set(learner.opt) == {"critic"}

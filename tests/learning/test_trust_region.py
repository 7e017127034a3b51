"""Trust regions: the natural gradient step, and the line search that shrinks it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from helpers import bits

from shoal.learning.trust_region import line_search, natural_step
from shoal.nets.distributions import Gaussian, masked

RNG = np.random.default_rng(0)
ROOT = RNG.normal(size=(6, 6))
CURVATURE = (ROOT @ ROOT.T + 0.5 * np.eye(6)).astype(np.float32)
SLOPE = RNG.normal(size=6).astype(np.float32)


def product(v: dict) -> dict:
    """`CURVATURE` times a vector that is kept in two pieces."""
    flat = CURVATURE @ jnp.concatenate([v["a"], v["b"].ravel()])
    return {"a": flat[:2], "b": flat[2:].reshape(2, 2)}


def test_the_step_is_the_inverse_times_the_slope_at_the_edge_of_the_region():
    slope = {"a": SLOPE[:2], "b": SLOPE[2:].reshape(2, 2)}
    step = natural_step(slope, product, 0.3, rounds=20)
    ours = np.concatenate([step["a"], np.ravel(step["b"])])
    solved = np.linalg.solve(CURVATURE, SLOPE)
    expected = solved * np.sqrt(2 * 0.3 / (solved @ CURVATURE @ solved))
    np.testing.assert_allclose(ours, expected, rtol=1e-3)
    assert 0.5 * ours @ CURVATURE @ ours == pytest.approx(0.3, rel=1e-3)
    # one round is the plain gradient's direction
    once = natural_step({"a": SLOPE}, lambda v: {"a": CURVATURE @ v["a"]}, 0.3, rounds=1)["a"]
    np.testing.assert_allclose(
        once / np.linalg.norm(once), SLOPE / np.linalg.norm(SLOPE), rtol=1e-3
    )


def test_without_a_slope_there_is_no_step():
    step = natural_step(jnp.zeros(6), lambda v: CURVATURE @ v, 0.3, rounds=5)
    assert not np.asarray(step).any()


def search(gain, kl, bound: float = 1.0, tries: int = 5, accept: float = 0.5):
    """From 0 along a step of 1 that promises 2, halved at every try."""

    def measure(x):
        return gain(x), kl(x)

    point, taken = line_search(
        measure, jnp.float32(0.0), jnp.float32(1.0), 2.0, bound, tries, 0.5, accept
    )
    return float(point), float(taken)


@pytest.mark.parametrize(
    ("gain", "kl", "taken"),
    [
        (lambda x: 2 * x, lambda x: 0 * x, 1.0),  # all that was promised
        (lambda x: 2 * x, lambda x: 3 * x, 0.25),  # too far before that
        (lambda x: 2 * x - 2 * x**2, lambda x: 0 * x, 0.5),  # half of what was promised
        (lambda x: 0.9 * x, lambda x: 0 * x, 0.0),  # always less than half
        (lambda x: -x, lambda x: 0 * x, 0.0),  # worse
        (lambda x: 2 * x, lambda x: 99 * x, 0.0),  # too far at every try
    ],
)
def test_a_step_shrinks_until_it_keeps_its_promise_or_is_refused(gain, kl, taken):
    assert search(gain, kl) == (taken, taken)


def test_a_refused_step_leaves_every_bit():
    params = {"a": jnp.array([-0.0, 1e-30, 3.0])}
    step = jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), params)
    after, taken = line_search(
        lambda _: (jnp.float32(-1.0), jnp.float32(0.0)), params, step, 1.0, 1.0, 3, 0.8, 0.5
    )
    assert bits(after) == bits(params) and taken == 0


def test_kl_of_categoricals_and_gaussians():
    legal = np.array([[True, True, False], [True, True, True]])
    logits = 2 * RNG.normal(size=(2, 2, 3)).astype(np.float32)
    p, q = (np.exp(np.float64(masked(x, legal).log_probs)) for x in jnp.asarray(logits))
    expected = [
        sum(a * np.log(a / b) for a, b in zip(*pair, strict=True) if a)
        for pair in zip(p, q, strict=True)
    ]
    ours = masked(jnp.asarray(logits[0]), legal).kl(masked(jnp.asarray(logits[1]), legal))
    np.testing.assert_allclose(ours, expected, atol=1e-6)
    used = jnp.array([True, True, False])
    one = Gaussian(jnp.array([0.3, -1.0, 9.0]), jnp.array([-0.5, 0.2, 0.0]), used, -1, 1, True)  # type: ignore[arg-type]
    two = Gaussian(jnp.array([0.1, -0.7, 0.0]), jnp.array([0.1, -0.3, 0.0]), used, -1, 1, True)  # type: ignore[arg-type]
    raw = jax.vmap(one.sample)(jax.random.split(jax.random.key(0), 200_000))
    drawn = jax.vmap(one.log_prob)(raw) - jax.vmap(two.log_prob)(raw)
    assert float(one.kl(two)) == pytest.approx(float(drawn.mean()), abs=0.01)
    assert float(one.kl(one)) == pytest.approx(0.0, abs=1e-6)

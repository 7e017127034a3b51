"""Gradients that are written by hand are those of the plain formulas."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from shoal.nets.layers import Dense, inner, standardised


def plainly(x):
    x = x - x.mean(-1, keepdims=True)
    return x / jnp.sqrt(jnp.square(x).mean(-1, keepdims=True) + 1e-5)


def close(one, other):
    for mine, plain in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        np.testing.assert_allclose(mine, plain, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("outs", [2, 9])  # narrower than the inputs, and wider
def test_the_gradient_of_a_dense_layer(outs):
    rng = np.random.default_rng(0)
    layer = Dense(rng, (0, 0), 4, outs)
    x = jnp.asarray(rng.normal(size=(3, 5, 2, 4)), jnp.float32)
    wanted = jax.grad(lambda w, x: jnp.sin(x @ w).sum(), (0, 1))(layer.weight[0], x)
    found = jax.grad(lambda layer, x: jnp.sin(layer(x)).sum(), (0, 1))(layer, x)
    close((found[0].weight[0], found[1]), wanted)
    close(layer.transposed()(jnp.sin(layer(x))), jnp.sin(layer(x)) @ layer.weight[0].T)


def test_layer_norm_and_its_gradient():
    x = jnp.asarray(np.random.default_rng(0).normal(3, 2, size=(1, 5, 2, 7)), jnp.float32)
    close(standardised(x), plainly(x))
    of = [jax.grad(lambda x, f=f: jnp.sin(f(x)).sum())(x) for f in (standardised, plainly)]
    close(*of)
    close(inner(x, jnp.cos(x)), (x * jnp.cos(x)).sum(-1))

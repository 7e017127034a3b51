"""JAX's random numbers, from operations that every framework has.

Threefry-2x32 with 20 rounds (Salmon et al. 2011). A key is its raw data, `[2]` uint32. Tests hold
the numbers to those of `jax.random`.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


def key_of(seed: Array) -> Array:
    """The key of a seed below 2**32."""
    low = lax.convert_element_type(seed, jnp.uint32)
    return jnp.stack([jnp.zeros_like(low), low], -1)


def split(key: Array, shape: tuple[Any, ...]) -> Array:
    """`[*shape,2]` new keys."""
    return jnp.stack(_hashed(key, *_counts(shape)), -1)


def fold_in(key: Array, number: Array) -> Array:
    """A key that depends on a number, too."""
    return jnp.stack(_hashed(key, *jnp.unstack(key_of(number), axis=-1)), -1)


def bits(key: Array, shape: tuple[Any, ...]) -> Array:
    """32 random bits for every element of an array."""
    high, low = _hashed(key, *_counts(shape))
    return high ^ low


def _counts(shape: tuple[Any, ...]) -> tuple[Array, Array]:
    """The number of each element, as its high and low words; there are fewer than 2**32."""
    size: Any = 1
    for length in shape:
        size = size * length
    low = lax.iota(jnp.uint32, size).reshape(shape)
    return jnp.zeros_like(low), low


def _hashed(key: Array, high: Array, low: Array) -> tuple[Array, Array]:
    first = key[..., 0]
    second = key[..., 1]
    keys = (first, second, first ^ second ^ jnp.uint32(PARITY))
    high = high + keys[0]
    low = low + keys[1]
    for block in range(5):
        for rotation in ROTATIONS[block % 2]:
            high = high + low
            low = (low << jnp.uint32(rotation)) | (low >> jnp.uint32(32 - rotation))
            low = high ^ low
        high = high + keys[(block + 1) % 3]
        low = low + keys[(block + 2) % 3] + jnp.uint32(block + 1)
    return high, low

"""Operations on every leaf of a pytree."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
from jax import Array

Tree = TypeVar("Tree")


def at(tree: Tree, index: Any) -> Tree:
    """Index every leaf, also by a slice (`np.s_[:-1]`); None adds a leading axis of length 1."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def row(tree: Tree, number: Array) -> Tree:
    """One row of every leaf, as a leading axis of length 1."""
    return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, number, 1), tree)


def with_row(tree: Tree, number: Array, new: Tree) -> Tree:
    """Replace one row of every leaf by `new`, shaped as `row` returns it."""
    return jax.tree.map(
        lambda leaf, one: jax.lax.dynamic_update_slice_in_dim(leaf, one, number, 0), tree, new
    )

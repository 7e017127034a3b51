"""Pytrees, leaf by leaf."""

from __future__ import annotations

from typing import Any, TypeVar

import jax
from jax import Array

Tree = TypeVar("Tree")


def at(tree: Tree, index: Any) -> Tree:
    """Every leaf at an index or a slice (`np.s_[:-1]`); None puts an axis of length 1 in front."""
    return jax.tree.map(lambda leaf: leaf[index], tree)


def row(tree: Tree, number: Array) -> Tree:
    """One row of every leaf, as an axis of length 1."""
    return jax.tree.map(lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, number, 1), tree)


def with_row(tree: Tree, number: Array, new: Tree) -> Tree:
    """Every leaf with one row, as `row` gives it, replaced."""
    return jax.tree.map(
        lambda leaf, one: jax.lax.dynamic_update_slice_in_dim(leaf, one, number, 0), tree, new
    )

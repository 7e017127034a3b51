"""Pytrees, leaf by leaf."""

from __future__ import annotations

from typing import Any, TypeVar

import jax

Tree = TypeVar("Tree")


def at(tree: Tree, index: Any) -> Tree:
    """Every leaf at an index or a slice (`np.s_[:-1]`); None puts an axis of length 1 in front."""
    return jax.tree.map(lambda leaf: leaf[index], tree)

"""Which robots move when several want to, by the rule of the package `rware`.

The package draws a graph of cells with an arrow from each robot's cell to the one it wants. A robot
that stays lets nobody in. Two who want to swap block each other, and whoever is behind them. Three
or more in a circle all move on, and nobody else does. Where a tree of arrows leads to an empty
cell, its longest chain moves. Every cell has at most one robot, hence one arrow out, so that this
comes to: on each cell the robot with the longest queue behind it (endless in a circle) goes first,
and moves if the cell ahead is empty or is left. Between equal queues the package goes by the order
of a set; here the robot with the lowest number wins.
"""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array


def movers(here: Array, goal: Array) -> Array:
    """`[N,B]` which robots move, from the cells `here [N,B]` to the cells `goal [N,B]`.

    A robot that stays has itself as its goal.
    """
    rounds = range(here.shape[0] - 1)  # enough rounds for the longest possible chain
    wants = goal != here
    behind = (goal[:, None] == here) & wants[:, None]  # [i,j,B] i wants the cell of j
    swaps = (behind & behind.swapaxes(0, 1)).any(1)
    queue = jnp.ones(here.shape, jnp.int32)
    for _ in rounds:
        queue = 1 + jnp.where(behind, queue[:, None], 0).max(0)
    rivals = (goal[:, None] == goal) & wants[:, None] & wants  # [i,j,B] both want the same cell
    lower = np.tri(here.shape[0], k=-1, dtype=bool)[..., None]  # j has a lower number than i
    longer = queue > queue[:, None]
    equal = queue == queue[:, None]
    able = wants & ~swaps & ~(rivals & (longer | (equal & lower))).any(1)
    empty = ~behind.any(1)
    moves = able
    for _ in rounds:
        moves = able & (empty | (behind & moves).any(1))
    return moves

"""The floor of a warehouse: where its shelves, highways and goals are."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

AISLE = 3  # two shelves and the highway beside them
WAYS = np.array([(-1, 0), (1, 0), (0, -1), (0, 1)])  # up, down, left, right, as (row, column)


class Floor(NamedTuple):
    """A warehouse without robots, as numpy arrays. Shelves are numbered row by row from 1."""

    highway: np.ndarray  # [rows,columns] bool: no shelf may stand here
    shelves: np.ndarray  # [S,2] row and column of each shelf at the opening
    goals: np.ndarray  # [G,2] rows and columns where requested shelves are delivered


@cache
def floor(shelf_rows: int, shelf_columns: int, column_height: int) -> Floor:
    """Lay out blocks of shelves, two wide, between highways.

    Two goals are in the middle of the last row, with free cells above them.
    """
    rows = (column_height + 1) * shelf_rows + 2
    columns = AISLE * shelf_columns + 1
    y, x = np.indices((rows, columns))
    middle = (x == columns // 2 - 1) | (x == columns // 2)
    queue = middle & (y > rows - (column_height + 3))
    highway = (x % AISLE == 0) | (y % (column_height + 1) == 0) | (y == rows - 1) | queue
    goals = np.array([[rows - 1, columns // 2 - 1], [rows - 1, columns // 2]])
    return Floor(highway, np.argwhere(~highway), goals)

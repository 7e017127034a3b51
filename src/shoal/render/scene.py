"""What a picture of a game is made of: shapes in the game's own coordinates, y upwards, drawn in
the order given.

A colour is the name of a team, a word of `draw.COLOURS`, or `#rrggbb`. Lengths are the game's own
but for those of text and lines, which are in points of a picture 600 points wide.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

XY = Any  # x and y: a tuple, a list, an array


class Disc(NamedTuple):
    """A round thing. One with a name is somebody: it casts a shadow and leaves a trail from picture
    to picture."""

    at: XY
    radius: float
    colour: str = "landmark"
    label: str = ""  # inside, or beside it where it is too small
    name: str = ""
    says: str = ""  # in a bubble; only somebody does
    alpha: float = 1.0
    hollow: bool = False  # just a ring


class Line(NamedTuple):
    """From point to point."""

    points: Sequence[XY]
    colour: str = "faint"
    width: float = 1.5
    alpha: float = 1.0
    dashed: bool = False


class Patch(NamedTuple):
    """A rectangle between two corners."""

    low: XY
    high: XY
    colour: str = "faint"
    alpha: float = 1.0
    hollow: bool = False


class Text(NamedTuple):
    """Words, centred at a point."""

    at: XY
    text: str
    size: float = 14
    colour: str = "ink"
    bold: bool = False


Shape = Disc | Line | Patch | Text


class Scene(NamedTuple):
    """One instant. The corners are of what is in the picture, which grows with whoever leaves
    it."""

    shapes: Sequence[Shape]
    low: XY = (-1.2, -1.2)
    high: XY = (1.2, 1.2)

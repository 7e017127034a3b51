"""The shapes that a picture of a game is made of.

Shapes are in the game's coordinates, y upwards, and drawn in the given order. A colour is the name
of a team, a key of `draw.COLOURS`, or `#rrggbb`. Widths of lines and sizes of text are in points of
a picture 600 points wide; all other lengths are the game's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

XY = Any  # x and y, as a tuple, list or array


class Disc(NamedTuple):
    """A disc. With a name it is an agent, which casts a shadow and leaves a trail."""

    at: XY
    radius: float
    colour: str = "landmark"
    label: str = ""  # drawn inside, or below if it does not fit
    name: str = ""
    says: str = ""  # text of a speech bubble; only for agents
    alpha: float = 1.0
    hollow: bool = False  # draw only a ring


class Line(NamedTuple):
    """A line through some points."""

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
    """Text centred at a point."""

    at: XY
    text: str
    size: float = 14
    colour: str = "ink"
    bold: bool = False


Shape = Disc | Line | Patch | Text


class Scene(NamedTuple):
    """One instant of a game.

    `low` and `high` are the corners of the visible part, which grows to include all agents.
    """

    shapes: Sequence[Shape]
    low: XY = (-1.2, -1.2)
    high: XY = (1.2, 1.2)

"""A picture of a warehouse."""

from __future__ import annotations

from typing import Any

from ....render import Disc, Line, Patch, Scene, Text
from ..grid import cell_lines, cell_middle
from .floor import WAYS, Floor


def picture(floor: Floor, world: Any, stands: Any, team: str) -> Scene:
    """Draw one warehouse: `world` is a `WarehouseWorld` without the axis `B`.

    `stands [S]` is the shelf at each of the floor's places, 0 if none. Requested shelves are
    coloured. A robot's stroke shows its direction, a frame around it the shelf it carries.
    """
    rows, columns = floor.highway.shape
    low = (-0.3, -0.3)
    high = (columns + 0.3, rows + 0.8)
    field: list = [Patch((0, 0), (columns, rows), "field"), *cell_lines(rows, columns)]
    for goal in floor.goals:
        field.append(_square(rows, goal, 0.5, "goal", 0.35))
    for cell, shelf in zip(floor.shelves, stands, strict=True):
        wanted = shelf > 0 and shelf in world.queue
        tone, alpha = ("food", 1.0) if wanted else ("landmark", 0.75)
        field.append(
            _square(rows, cell, 0.42, tone, alpha)
            if shelf
            else _square(rows, cell, 0.42, "faint", 0.5)
        )
    robots = []
    for i, (place, way, load) in enumerate(zip(world.place, world.way, world.load, strict=True)):
        if load:
            tone = "food" if load in world.queue else "landmark"
            field.append(_square(rows, place, 0.46, tone, 1.0))
        x, y = cell_middle(rows, place)
        down, right = WAYS[way]
        field.append(Line([(x, y), (x + 0.5 * right, y - 0.5 * down)], "ink", 3.5))
        robots.append(Disc((x, y), 0.33, team, str(i), f"{team}_{i}"))
    count = Text((columns / 2, rows + 0.4), f"{world.delivered} delivered", 13, "soft")
    return Scene([*field, *robots, count], low, high)


def _square(rows: int, place: Any, half: float, colour: str, alpha: float) -> Patch:
    x, y = cell_middle(rows, place)
    return Patch((x - half, y - half), (x + half, y + half), colour, alpha)

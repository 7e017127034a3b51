"""A picture of a field with food."""

from __future__ import annotations

from typing import Any

from ....render import Disc, Patch, Scene, Text
from ..grid import cell_lines, cell_middle


def picture(rows: int, columns: int, world: Any, loading: Any, team: str) -> Scene:
    """Draw one field: `world` is a `ForagingWorld` without the axis `B`.

    Levels are numbers. `loading [N]` says around whom to draw a ring.
    """
    field = [Patch((0, 0), (columns, rows), "field"), *cell_lines(rows, columns)]
    food = [
        Disc(cell_middle(rows, at), 0.33, "food", str(amount))
        for at, amount in zip(world.food, world.amount, strict=True)
        if amount
    ]
    players = []
    rings = []
    for i, (at, level) in enumerate(zip(world.place, world.level, strict=True)):
        x, y = cell_middle(rows, at)
        # two may share a cell
        x += 0.18 * (i - min(j for j in range(i + 1) if (world.place[j] == at).all()))
        players.append(Disc((x, y), 0.36, team, str(level), f"{team}_{i}"))
        if loading[i]:
            rings.append(Disc((x, y), 0.45, "goal", hollow=True))
    done = 100 * (1 - world.amount.sum() / max(world.spawned, 1))
    told = Text((columns / 2, rows + 0.3), f"{done:.0f} % of the food", 13, "soft")
    low = (-0.3, -0.3)
    high = (columns + 0.3, rows + 0.6)
    return Scene([*field, *food, *rings, *players, told], low, high)

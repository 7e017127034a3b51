"""Parts of a worker's games that step together: all of them, or one half."""

from __future__ import annotations

# orders to a worker, a byte each: numbers of parts, and the one that asks for pictures
ALL = 0
HALVES = (1, 2)
DRAW = 3


def part_of(games: range, part: int) -> range:
    """The games of a part; the second half of a single game is empty."""
    middle = (games.start + games.stop + 1) // 2
    return (games, range(games.start, middle), range(middle, games.stop))[part]

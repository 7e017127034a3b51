"""Base of the grid games: options in ids, efficient resets, sampling without replacement.

Cells are numbered row by row from the top left, as in the original packages. Arrays keep the games
axis `B` last.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import reduce
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from ...errors import ShoalError
from ...render import Line
from ..game import Game, at_least

LOT = 32  # one in this many games is expected to reset in a step


@dataclass(frozen=True)
class GridGame(Game):
    """Base of games whose ids contain options, and whose episodes end at different times."""

    max_cycles: int = 50
    """steps until time runs out"""

    example: ClassVar[str]  # an example of what follows `name/` in an id
    form: ClassVar[str]  # its syntax, for users
    reads: ClassVar[re.Pattern[str]]  # its syntax as a pattern; groups are words with a meaning

    def __post_init__(self) -> None:
        at_least(1, max_cycles=self.max_cycles)

    @property
    def limit(self) -> int:
        return self.max_cycles

    @classmethod
    def said(cls, rest: str) -> dict[str, Any]:
        """Parse the options in the id `name/rest`."""
        found = cls.reads.fullmatch(rest)
        if not found:
            raise ShoalError(
                f"there is no game {f'{cls.name}/{rest}'!r}: write {cls.name}/{cls.form}"
            )
        return cls.meant(**{word: told for word, told in found.groupdict().items() if told})

    @classmethod
    def meant(cls, **words: str) -> dict[str, Any]:
        """Options for the words found in an id."""
        raise NotImplementedError

    def _reopen(self, key: Array, first: Array, world: Any) -> Any:
        """Reset games in small batches: few end in each step, and an opening costs many steps."""
        games = first.shape[0]
        lot = min(games, max(8, games // LOT))

        def deal(carry: tuple[Array, Array, Any]) -> tuple[Array, Array, Any]:
            key, left, world = carry
            key, now = jax.random.split(key)
            turn = jnp.cumsum(left) - 1
            served = left & (turn < lot)
            places = (
                jnp.full(lot, games)
                .at[jnp.where(served, turn, lot)]
                .set(jnp.arange(games), mode="drop")
            )
            fresh = self.start(now, lot)
            world = jax.tree.map(
                lambda old, new: old.at[..., places].set(new, mode="drop"), world, fresh
            )
            return key, left & ~served, world

        return jax.lax.while_loop(
            lambda carry: carry[1].any(), deal, (jax.random.fold_in(key, 1), first, world)
        )[2]


def below(key: Array, ends: Any, games: int) -> Array:
    """`[n,B]` uniform integers, the i-th below the i-th of `ends [n]`."""
    ends = jnp.asarray(ends)[:, None]
    return jnp.floor(jax.random.uniform(key, (ends.shape[0], games)) * ends).astype(jnp.int32)


def skip(taken: Array, nth: Array) -> Array:
    """`[B]` the `nth [B]` of the integers 0, 1, 2 … that are not in `taken [n,B]`.

    The taken integers must all differ.
    """
    passed = lambda _, number: nth + (taken <= number).sum(0, dtype=jnp.int32)  # noqa: E731
    return jax.lax.fori_loop(0, taken.shape[0], passed, nth)


def distinct(key: Array, n: int, total: int, games: int) -> Array:
    """`[n,B]` different integers below `total`: a uniform sample without replacement."""
    nth = below(key, total - np.arange(n), games)
    none = jnp.full((n, games), total)
    return jax.lax.fori_loop(0, n, lambda i, taken: taken.at[i].set(skip(taken, nth[i])), none)


def either(parts: Any) -> Array:
    """Elementwise or of several bool arrays; XLA fuses this, unlike a reduction."""
    return reduce(jnp.logical_or, parts)


def cell_lines(rows: int, columns: int, colour: str = "faint") -> list[Line]:
    """Grid lines of a picture in which a cell is 1 wide and the first row is at the top."""
    across = [Line([(0, y), (columns, y)], colour, 1.0) for y in range(rows + 1)]
    return [*across, *(Line([(x, 0), (x, rows)], colour, 1.0) for x in range(columns + 1))]


def cell_middle(rows: int, place: Any) -> tuple[float, float]:
    """Centre of a cell in such a picture, y upwards."""
    return place[1] + 0.5, rows - place[0] - 0.5

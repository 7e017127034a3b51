"""Options from ids, resets for several games at once, sampling without replacement.

Cells are counted row by row from the top left, as the packages do. Arrays keep the games axis `B`
last.
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

LOT = 32  # one of so many games is expected to open anew in a step


@dataclass(frozen=True)
class GridGame(Game):
    """Base of the games whose ids say options, and whose episodes end one by one."""

    max_cycles: int = 50
    """steps until time runs out"""

    example: ClassVar[str]  # what follows `name/` in an id
    form: ClassVar[str]  # what may, for people
    reads: ClassVar[re.Pattern[str]]  # the same for us: its groups are the words that say something

    def __post_init__(self) -> None:
        at_least(1, max_cycles=self.max_cycles)

    @property
    def limit(self) -> int:
        return self.max_cycles

    @classmethod
    def said(cls, rest: str) -> dict[str, Any]:
        """The options that the id `name/rest` says."""
        found = cls.reads.fullmatch(rest)
        if not found:
            raise ShoalError(
                f"there is no game {f'{cls.name}/{rest}'!r}: write {cls.name}/{cls.form}"
            )
        return cls.meant(**{word: told for word, told in found.groupdict().items() if told})

    @classmethod
    def meant(cls, **words: str) -> dict[str, Any]:
        """The options that these words of an id stand for."""
        raise NotImplementedError

    def _reopen(self, key: Array, first: Array, world: Any) -> Any:
        """Openings drawn for a lot of games at a time: a few end in each step, and an opening costs
        many steps."""
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
    """`[n,B]` whole numbers, the i-th below the i-th of `ends [n]`, each as likely as any other."""
    ends = jnp.asarray(ends)[:, None]
    return jnp.floor(jax.random.uniform(key, (ends.shape[0], games)) * ends).astype(jnp.int32)


def skip(taken: Array, nth: Array) -> Array:
    """`[B]` the `nth [B]` of the numbers 0, 1, 2 … that is none of those taken `[n,B]`, which all
    differ."""
    passed = lambda _, number: nth + (taken <= number).sum(0, dtype=jnp.int32)  # noqa: E731
    return jax.lax.fori_loop(0, taken.shape[0], passed, nth)


def distinct(key: Array, n: int, total: int, games: int) -> Array:
    """`[n,B]` different whole numbers below `total`, every order of any of them equally likely."""
    nth = below(key, total - np.arange(n), games)
    none = jnp.full((n, games), total)
    return jax.lax.fori_loop(0, n, lambda i, taken: taken.at[i].set(skip(taken, nth[i])), none)


def either(parts: Any) -> Array:
    """Whether any of several arrays of yes and no is yes, element by element: fused, where a
    reduction is not."""
    return reduce(jnp.logical_or, parts)


def cell_lines(rows: int, columns: int, colour: str = "faint") -> list[Line]:
    """The grid of a picture in which a cell is a unit wide and the first row is the highest."""
    across = [Line([(0, y), (columns, y)], colour, 1.0) for y in range(rows + 1)]
    return [*across, *(Line([(x, 0), (x, rows)], colour, 1.0) for x in range(columns + 1))]

"""Things alike that observations list, read nearest first.

Written as kinds, each first:numbersxcount, such as 4:2x3,10:2x2: the number at which its list
begins, the numbers of each thing, and how many there are. A thing's first two numbers say where it
is, seen from the agent. Where they are a place on the board instead, the numbers of the agent's own
place follow, such as 0:3x3,12:3x2@9,10.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from ..errors import ShoalError

NUMBER = r"(0|[1-9]\d{0,7})"
KIND = re.compile(rf"{NUMBER}:{NUMBER}x{NUMBER}")
PLACE = re.compile(rf"{NUMBER},{NUMBER}")


class Kind(NamedTuple):
    """Things alike, one after another."""

    first: int  # the first number of the first thing
    numbers: int  # of each thing
    things: int

    @property
    def end(self) -> int:
        """One past the last number of the last thing."""
        return self.first + self.numbers * self.things


class Entities(NamedTuple):
    """All kinds, and the numbers that are the agent's own place, if it is needed."""

    kinds: tuple[Kind, ...] = ()
    own_place: tuple[int, ...] = ()

    @property
    def last(self) -> int:
        """The last number of an observation that is read."""
        return max(*(kind.end - 1 for kind in self.kinds), *self.own_place, -1, -1)

    @property
    def places(self) -> tuple[int, ...]:
        """The numbers that say where things, and the agent, are."""
        starts = [
            start for kind in self.kinds for start in range(kind.first, kind.end, kind.numbers)
        ]
        return (*self.own_place, *(start + i for start in starts for i in range(2)))

    def nearest_first(self, obs: Array) -> Array:
        """Observations `[…,F]` with the things of each kind in order of their distance.

        Things equally far keep their order.
        """
        pieces = []
        done = 0
        for kind in self.kinds:
            rows = obs[..., kind.first : kind.end]
            rows = ordered(self._seen(rows.reshape(*obs.shape[:-1], kind.things, -1), obs))
            pieces += [obs[..., done : kind.first], rows.reshape(*obs.shape[:-1], -1)]
            done = kind.end
        return jnp.concatenate([*pieces, obs[..., done:]], -1)

    def _seen(self, rows: Array, obs: Array) -> Array:
        """Things `[…,M,k]` as the agent sees them: relative to its own place."""
        if not self.own_place:
            return rows
        here = jnp.stack([obs[..., number] for number in self.own_place], -1)[..., None, :]
        return jnp.concatenate([rows[..., :2] - here, rows[..., 2:]], -1)


def ordered(rows: Array) -> Array:
    """Rows `[…,M,k]` by the length of their first two numbers."""
    count = rows.shape[-2]
    away = jnp.square(rows[..., :2]).sum(-1)
    ahead = away[..., None, :] < away[..., :, None]
    tied = (away[..., None, :] == away[..., :, None]) & np.tri(count, k=-1, dtype=bool)
    rank = (ahead | tied).sum(-1)
    slot = rank[..., None, :] == np.arange(count)[:, None]
    return jnp.where(slot[..., None], rows[..., None, :, :], 0).sum(-2)


def parse(entities: str) -> Entities:
    """Parse kinds and a place; empty for none."""
    if not entities:
        return Entities()
    words, at, place = entities.partition("@")
    found = [KIND.fullmatch(word) for word in words.split(",")]
    kinds = sorted(Kind(*map(int, match.groups())) for match in found if match)
    own = PLACE.fullmatch(place)
    if (
        None in found
        or (at and not own)
        or any(kind.numbers < 2 or not kind.things for kind in kinds)
        or any(a.end > b.first for a, b in pairwise(kinds))
    ):
        raise ShoalError(
            "entities must be kinds that do not overlap, each first:numbersxcount with two numbers"
            f" or more, such as 4:2x3,10:2x2 or 0:3x3,12:3x2@9,10, not {entities!r:.80}"
        )
    return Entities(tuple(kinds), tuple(map(int, own.groups())) if own else ())

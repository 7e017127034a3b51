"""A window of games on the host while it is played, all games at once or by halves.

By halves, policies act for one half of the games while the other half steps. Either way they decide
with one program on arrays of all games, of which only the part's rows count: a program for half of
the games would draw other random numbers and round otherwise. So halves change no bit, and cost
each decision twice, which pays where stepping takes longer.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import jax
import numpy as np

from ..envs.host.faults import Fault
from ..learning.trees import at
from ..types import View
from .played import PlayedSteps, by_game
from .stage import Stage

# views, carries, keys and step in; actions, carries and records out
Decide = Callable[[dict[str, View], Any, np.ndarray, int], tuple[Any, Any, Any]]


class HostWindow:
    """`steps` steps of all games, from these views and carries `[D,B/D,…]` on."""

    def __init__(
        self,
        stage: Stage,
        decide: Decide,
        parts: tuple[int, ...],
        steps: int,
        views: dict[str, View],
        carries: Any,
        keys: np.ndarray,
        metrics: tuple[str, ...],
    ):
        self.stage = stage
        self.decide = decide
        self.parts = parts
        self.steps = steps
        self.keys = keys
        self.streams = jax.tree.map(lambda x: _unfold(steps + 1, x), views)
        self.shape = next(iter(views.values())).first.shape  # [D,B/D]
        self.broken = np.zeros((steps, *self.shape), bool)
        self.metrics = {name: np.zeros((steps, *self.shape), np.float32) for name in metrics}
        # by part: what policies remember, and what they did
        self.carries = dict.fromkeys(parts, jax.device_put(carries, jax.local_devices()[0]))
        self.decided: dict[int, list[Any]] = {part: [] for part in parts}
        self.acting: list[float] = []  # seconds of each decision
        self.waiting: list[float] = []  # seconds of waiting after each

    def act(self, part: int, t: int) -> None:
        """Decide for a part's games at instant t, and let them step."""
        began = time.perf_counter()
        seen = at(self.streams, t)
        actions, self.carries[part], records = self.decide(seen, self.carries[part], self.keys, t)
        decided = jax.device_get((actions, records))
        self.decided[part].append(decided)
        rows = self.stage.rows[part]
        for name, row in self.metrics.items():
            by_game(row[t], 0)[rows] = self.stage.metrics()[name][rows]
        by_team = {team: by_game(action, 0) for team, action in decided[0].items()}
        self.stage.go(part, self.keys, t, by_team)
        self.acting.append(time.perf_counter() - began)

    def see(self, part: int, t: int) -> list[Fault]:
        """Wait until a part's games are at instant t; return the faults."""
        began = time.perf_counter()
        views, broken, faults = self.stage.wait(part)
        self.waiting.append(time.perf_counter() - began)
        rows = self.stage.rows[part]
        by_game(self.broken[t - 1], 0)[rows] = broken[rows]
        for place, new in zip(jax.tree.leaves(self.streams), jax.tree.leaves(views), strict=True):
            by_game(place[t], 0)[rows] = new[rows]
        return faults

    @property
    def halves_pay(self) -> bool:
        """Whether two decisions take less time than the games to step, all at once.

        The median does not mind that the first decision may be compiled."""
        return 2 * median(self.acting) < median(self.waiting)

    def played(self) -> PlayedSteps:
        """All that was played."""
        stacked = {
            part: jax.tree.map(lambda *rows: np.stack(rows), *decided)
            for part, decided in self.decided.items()
        }
        actions, records = self._joined(stacked, 1)
        carries = self._joined(jax.device_get(self.carries), 0)
        lost = np.zeros(self.shape, bool)
        return PlayedSteps(self.streams, actions, records, carries, self.metrics, self.broken, lost)

    def _joined(self, by_part: dict[int, Any], axis: int) -> Any:
        """Every part's own rows; `axis` is that of devices."""
        whole, *others = by_part.items()
        if not others:
            return whole[1]
        joined = jax.tree.map(np.array, whole[1])
        for part, tree in others:
            own = (*(slice(None),) * axis, self.stage.rows[part])
            for place, new in zip(jax.tree.leaves(joined), jax.tree.leaves(tree), strict=True):
                by_game(place, axis)[own] = by_game(new, axis)[own]
        return joined


def _unfold(steps: int, x: Any) -> np.ndarray:
    """An array for `steps` instants, with only the first filled.

    Zeros are what policies see of games that they do not decide for."""
    room = np.zeros((steps, *x.shape), x.dtype)
    room[0] = x
    return room

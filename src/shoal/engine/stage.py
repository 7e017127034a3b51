"""Games that are stepped outside the compiled program."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from jax import Array

from ..envs.host.arena import Arena
from ..envs.host.faults import Fault
from ..types import View


class Stage(Protocol):
    """Games that are stepped outside the compiled program."""

    def open(self, keys: Array) -> tuple[dict[str, View], list[Fault]]:
        """Open the games; return the opening views and the faults so far.

        Device d's games may use `keys[d]`."""
        ...

    @property
    def rows(self) -> dict[int, Any]:
        """By part, an index of its games in `[B,…]`: `ALL`, and `HALVES` if they can take turns."""
        ...

    def go(self, part: int, keys: np.ndarray, t: int, actions: dict[str, np.ndarray]) -> None:
        """Start a step of a part's games, by their rows of the actions.

        Step t may use `keys[d,t,0]`."""
        ...

    def wait(self, part: int) -> tuple[dict[str, View], np.ndarray, list[Fault]]:
        """Wait for the step of a part's games; return the next views, `[B]` bool where an episode
        broke, and the faults. Only the part's rows count."""
        ...

    def metrics(self) -> dict[str, np.ndarray]:
        """The environment's own metrics `[B]`, by name, of episodes that are over now."""
        ...

    def renew(self, episodes: np.ndarray) -> None:
        """Break off the current episodes; the next step opens those numbered after `episodes
        [B]`."""
        ...

    def episodes(self) -> np.ndarray:
        """`[B]` the number of episodes that each game has opened."""
        ...

    def close(self) -> None:
        """End the games."""
        ...


class HostStage:
    """The games of an arena; it seeds its games itself and ignores keys."""

    def __init__(self, arena: Arena):
        self.arena = arena

    def open(self, keys: Array) -> tuple[dict[str, View], list[Fault]]:
        faults = self.arena.step()
        return self.arena.views(), faults

    @property
    def rows(self) -> dict[int, Any]:
        return self.arena.rows

    def go(self, part: int, keys: np.ndarray, t: int, actions: dict[str, np.ndarray]) -> None:
        self.arena.go(part, actions)

    def wait(self, part: int) -> tuple[dict[str, View], np.ndarray, list[Fault]]:
        faults = self.arena.wait(part)
        return self.arena.views(), self.arena.arrays["broken"], faults

    def metrics(self) -> dict[str, np.ndarray]:
        return self.arena.metrics()

    def renew(self, episodes: np.ndarray) -> None:
        self.arena.renew(episodes)

    def episodes(self) -> np.ndarray:
        return self.arena.arrays["episode"].astype(np.uint32)

    def close(self) -> None:
        self.arena.close()

"""Stages of tests: games that are stepped from outside, all at once."""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.envs.host.parts import ALL


class AtOnce:
    """A stage whose `step` steps all games."""

    step: Any
    rows = {ALL: slice(None)}

    def go(self, part: int, keys: np.ndarray, t: int, actions: dict[str, np.ndarray]) -> None:
        self.asked = (keys, t, actions)

    def wait(self, part: int) -> Any:
        return self.step(*self.asked)

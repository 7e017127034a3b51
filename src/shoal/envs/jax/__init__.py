"""Adapters for games written in JAX: jaxmarl, gymnax and jumanji, on the compiled engine.

Imports `envs.game`, `envs.metrics`, `adapters.teams`, `render` and the records.

Such a package defines one game as two pure functions. `JaxGame` plays many such games in parallel,
as a stream that resets on the next step (`types.py`). It calls the packages' steps *without* their
automatic resets, so that the final view of an episode is the true one. Where a package returns only
`done`, `JaxGame` finds out whether the task or the clock ended the episode: it repeats the step
with the clock set back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..game import Env
from .gymnax import make_gymnax
from .jaxmarl import make_jaxmarl
from .jumanji import make_jumanji

FOREIGN: dict[str, Callable[[str, dict[str, Any]], Env]] = {
    "jaxmarl": make_jaxmarl,
    "gymnax": make_gymnax,
    "jumanji": make_jumanji,
}

"""Games written in JAX by others, on the compiled engine: jaxmarl, gymnax and jumanji.

They may touch `envs.game`, `envs.metrics`, `adapters.teams`, `render` and the records.

Such a package writes one game as two pure functions. `JaxGame` plays many games of it side by side
and keeps the promises of the stream (`types.py`). It uses the packages' steps *without* their
automatic resets, so that the view an episode ends with is its own; and where a package says only
`done`, it finds out whether the task or the clock ended the episode, by asking what the same step
would have said with the clock set back.
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

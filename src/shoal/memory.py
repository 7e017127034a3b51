"""What a team keeps to learn from."""

from __future__ import annotations

from typing import Any, NamedTuple


class Rollout(NamedTuple):
    """On-policy memory: the window just played, once."""

    carry: Any  # [B,…] the critic's carry at the window's first instant
    window: Any = ()  # Window, between remembering and learning

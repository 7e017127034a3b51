"""Level-based foraging, as the package `lbforaging` plays it.

It may touch `envs.game`, `native.grid`, `render` and the records.
"""

from .foraging import Foraging

__all__ = ["Foraging"]

"""Level-based foraging, equal to the package `lbforaging`.

Imports `envs.game`, `native.grid`, `render` and the records.
"""

from .foraging import Foraging

__all__ = ["Foraging"]

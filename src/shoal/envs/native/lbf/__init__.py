"""Level-based foraging, as the package `lbforaging` plays it."""

from .foraging import Foraging

__all__ = ["Foraging"]

"""The robot warehouse, equal to the package `rware`: rules, floor, traffic and picture.

Imports `envs.game`, `native.grid`, `render` and the records.
"""

from .warehouse import Warehouse

__all__ = ["Warehouse"]

"""The robot warehouse, as the package `rware` plays it: rules, floor, traffic and picture.

It may touch `envs.game`, `native.grid`, `render` and the records.
"""

from .warehouse import Warehouse

__all__ = ["Warehouse"]

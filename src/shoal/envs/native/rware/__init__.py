"""The robot warehouse, as the package `rware` plays it."""

from .warehouse import Warehouse

__all__ = ["Warehouse"]

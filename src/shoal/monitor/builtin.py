"""The callbacks that a run has by itself."""

from __future__ import annotations

from ..config.config import Config
from .callbacks import Callback
from .film import Filming
from .trackers import trackers


def builtin(config: Config) -> list[Callback]:
    """Those that the settings ask for."""
    filming = [Filming(config)] if config.settings.film else []
    return [*trackers(config), *filming]

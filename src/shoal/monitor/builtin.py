"""Callbacks that a run's settings ask for."""

from __future__ import annotations

from .. import plugins
from ..config.config import Config
from .callbacks import Callback
from .film import Filming
from .trackers import trackers


def builtin(config: Config) -> list[Callback]:
    """Callbacks of ours: trackers and videos."""
    filming = [Filming(config)] if config.settings.film else []
    return [*trackers(config), *filming]


def users(config: Config) -> list[Callback]:
    """The user's callbacks, by entry point or import path."""
    words = config.settings.callbacks
    return (
        [plugins.made("callback", word.strip(), Callback) for word in words.split(",")]
        if words
        else []
    )

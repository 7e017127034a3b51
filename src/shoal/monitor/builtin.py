"""Callbacks that a run's settings ask for."""

from __future__ import annotations

from .. import plugins
from ..config.config import Config
from ..errors import ShoalError, did_you_mean
from ..store.places import is_url
from .callbacks import Callback
from .film import Filming
from .mirroring import Mirroring
from .trackers import trackers


def builtin(config: Config) -> list[Callback]:
    """Callbacks of ours: trackers, videos, and last the mirror of what all have written."""
    filming = [Filming(config)] if config.settings.film else []
    mirroring = [Mirroring()] if is_url(config.settings.out) else []
    return [*trackers(config), *filming, *mirroring]


def users(config: Config) -> list[Callback]:
    """The user's callbacks, by entry point or import path."""
    words = config.settings.callbacks
    return [_made(word.strip()) for word in words.split(",")] if words else []


def _made(word: str) -> Callback:
    path = plugins.path_of("callback", word)
    if not path:
        hint = did_you_mean(word, plugins.entries("callback"))
        raise ShoalError(f"there is no callback {word!r}{hint}: name one as <module>:<class>")
    kind = plugins.load(path)
    if not isinstance(kind, type) or not issubclass(kind, Callback):
        raise ShoalError(f"{path} is not a callback: derive it from shoal.Callback")
    try:
        return kind()
    except TypeError as error:
        raise ShoalError(f"{path} cannot be made without arguments: {error}") from None

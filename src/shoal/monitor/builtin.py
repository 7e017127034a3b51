"""Callbacks that a run's settings ask for."""

from __future__ import annotations

from .. import plugins
from ..config.config import Config
from ..errors import ShoalError, did_you_mean
from . import replay
from .callbacks import Callback
from .film import Filming
from .stop_file import StopFile
from .trackers import trackers


def builtin(config: Config) -> list[Callback]:
    """Callbacks of ours: trackers, videos, replays, and the request to stop."""
    filming = [Filming(config)] if config.settings.film else []
    episodes = replay.wanted(config)
    recording = [replay.Replays(config, episodes)] if episodes else []
    return [*trackers(config), *filming, *recording, StopFile()]


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

"""Callbacks that a run's settings ask for."""

from __future__ import annotations

from .. import plugins
from ..config.config import Config
from ..store.places import is_url
from . import replay
from .callbacks import Callback
from .film import Filming
from .mirroring import Mirroring
from .stop_file import StopFile
from .trackers import trackers


def builtin(config: Config) -> list[Callback]:
    """Callbacks of ours: trackers, videos, replays, the request to stop; last, the mirror of what
    all have written."""
    filming = [Filming(config)] if config.settings.film else []
    mirroring = [Mirroring()] if is_url(config.settings.out) else []
    episodes = replay.wanted(config)
    recording = [replay.Replays(config, episodes)] if episodes else []
    return [*trackers(config), *filming, *recording, StopFile(), *mirroring]


def users(config: Config) -> list[Callback]:
    """The user's callbacks, by entry point or import path."""
    words = config.settings.callbacks
    return (
        [plugins.made("callback", word.strip(), Callback) for word in words.split(",")]
        if words
        else []
    )

"""Handle Ctrl-C and SIGTERM, so that a run can end cleanly."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from typing import Any


def install(handler: Callable[[int, Any], None]) -> dict[int, Any]:
    """Install a handler of Ctrl-C and SIGTERM, in the main thread only, as Python demands.

    Returns the previous handlers, for `restore`."""
    if threading.current_thread() is not threading.main_thread():
        return {}
    return {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}


def restore(before: dict[int, Any]) -> None:
    """Restore the handlers that `install` replaced."""
    for number, handler in before.items():
        signal.signal(number, handler)


class Stop:
    """Records the first Ctrl-C or SIGTERM for the run to see; a second one acts as usual."""

    def __init__(self) -> None:
        self.signal = 0
        self.arrived = float("inf")  # when a signal came: its sender is waiting
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        self.before = install(self._keep)
        return self

    def __exit__(self, *_: Any) -> None:
        restore(self.before)

    @property
    def from_outside(self) -> bool:
        """Whether a signal came, not a callback's wish."""
        return self.arrived < float("inf")

    def ask(self) -> None:
        """Ask the run to stop from Python."""
        self.signal = self.signal or int(signal.SIGTERM)

    def _keep(self, number: int, frame: Any) -> None:
        self.signal = number
        self.arrived = time.monotonic()
        self.__exit__()

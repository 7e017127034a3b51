"""Ctrl-C and SIGTERM, kept so that a run can end cleanly."""

from __future__ import annotations

import signal
import threading
from typing import Any


class Stop:
    """Keeps the first Ctrl-C or SIGTERM for the run to see; the second one acts as usual."""

    def __init__(self) -> None:
        self.signal = 0
        self.from_outside = False  # whoever sent it is waiting
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            self.before = {
                number: signal.signal(number, self._keep)
                for number in (signal.SIGINT, signal.SIGTERM)
            }
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def ask(self) -> None:
        """Ask the run to stop from Python."""
        self.signal = self.signal or int(signal.SIGTERM)

    def _keep(self, number: int, frame: Any) -> None:
        self.signal = number
        self.from_outside = True
        self.__exit__()

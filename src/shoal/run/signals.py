"""Ctrl-C and SIGTERM, noted so that a run can end cleanly."""

from __future__ import annotations

import signal
import threading
from typing import Any


class Stop:
    """Notes the first Ctrl-C or SIGTERM instead of dying of it; the second one acts as usual."""

    def __init__(self) -> None:
        self.signal = 0
        self.hasty = False  # it came from outside: whoever sent it is waiting
        self.before: dict[int, Any] = {}

    def __enter__(self) -> Stop:
        if threading.current_thread() is threading.main_thread():
            self.before = {
                number: signal.signal(number, self._note)
                for number in (signal.SIGINT, signal.SIGTERM)
            }
        return self

    def __exit__(self, *_: Any) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)

    def ask(self) -> None:
        """The same from within."""
        self.signal = self.signal or int(signal.SIGTERM)

    def _note(self, number: int, frame: Any) -> None:
        self.signal = number
        self.hasty = True
        self.__exit__()

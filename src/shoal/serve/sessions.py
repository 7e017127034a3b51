"""Sessions: what the policies remember of games that come back, for a while."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from ..errors import ShoalError
from .policy import Memory


class Unknown(ShoalError):
    """No session of that name."""


class TooMany(ShoalError):
    """No room for another session."""


class Sessions:
    """Memories by name; the one that was not used for `idle` seconds is forgotten."""

    def __init__(self, most: int, idle: float, clock: Callable[[], float] = time.monotonic):
        self.most = most
        self.idle = idle
        self._clock = clock
        self._open: dict[str, tuple[float, Memory]] = {}  # by name, the oldest use first

    def __len__(self) -> int:
        self._forget()
        return len(self._open)

    def open(self) -> str:
        """Open a session and return its name."""
        self._forget()
        if len(self._open) >= self.most:
            raise TooMany(
                f"{self.most} sessions are open already: close one, or wait until one expires"
            )
        name = secrets.token_urlsafe(12)
        self._open[name] = self._clock(), Memory()
        return name

    def use(self, name: object) -> Memory:
        """A session's memory."""
        self._forget()
        if not isinstance(name, str) or name not in self._open:
            raise Unknown(
                f"there is no session {str(name)[:40]!r}: it was closed or has expired;"
                " open another by POST /sessions"
            )
        _, memory = self._open.pop(name)
        self._open[name] = self._clock(), memory
        return memory

    def close(self, name: str) -> None:
        """Forget a session."""
        self.use(name)
        del self._open[name]

    def _forget(self) -> None:
        oldest = self._clock() - self.idle
        while self._open:
            name, (used, _) = next(iter(self._open.items()))
            if used >= oldest:
                return
            del self._open[name]

"""Mistakes of the user's, told in one sentence that says what to change."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # what a disk says that takes no more


class ShoalError(Exception):
    """A mistake of the user's, told in one sentence that says what to change."""

    exit_code = 2
    reason = "refused"  # why a run ended, if it ended of this
    detail = ""  # such as the traceback of somebody's environment, on lines of its own


def printable(text: str, most: int = 2000) -> str:
    """Text from a file as a terminal may show it: control characters escaped, cut if endless."""
    shown = text if len(text) <= most else f"{text[:most]}…"
    return "".join(
        sign if sign.isprintable() or sign in "\n\t" else repr(sign)[1:-1] for sign in shown
    )


def nearest(word: str, known: Iterable[str]) -> str:
    """`, did you mean …?`, if anything known is near."""
    near = difflib.get_close_matches(word, list(known), 1, cutoff=0.5)
    return f", did you mean {near[0]!r}?" if near else ""

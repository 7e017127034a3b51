"""The error that users see: one sentence that says what is wrong and what to change."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # error numbers of a disk that is full


class ShoalError(Exception):
    """A user's mistake; the message is one sentence that says what to change."""

    exit_code = 2
    reason = "refused"  # recorded as the reason of a run that this error ended
    detail = ""  # printed before the message, such as an environment's traceback


def printable(text: str, most: int = 2000) -> str:
    """Text from a file as a terminal may show it: control characters escaped, cut if endless."""
    shown = text if len(text) <= most else f"{text[:most]}…"
    return "".join(
        sign if sign.isprintable() or sign in "\n\t" else repr(sign)[1:-1] for sign in shown
    )


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean …?)` with the most similar word that is known; empty if none is similar."""
    near = difflib.get_close_matches(word, list(known), 1, cutoff=0.5)
    return f" (did you mean {near[0]!r}?)" if near else ""

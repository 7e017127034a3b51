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


def nearest(word: str, known: Iterable[str]) -> str:
    """`, did you mean …?`, if anything known is near."""
    near = difflib.get_close_matches(word, list(known), 1, cutoff=0.5)
    return f", did you mean {near[0]!r}?" if near else ""

"""Entry point of a child process: of one run (`sweep/runner.py`), or of several that train one
together (`run/launch.py`)."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from ..config.trust import Trust
from ..envs.host.guard import die_with
from .main import entry


def main(about: dict[str, Any], words: list[str]) -> None:
    """Run `shoal` with these words on the given cores, or all; end when the parent process ends.

    Without `trust`, the words are what the user typed."""
    die_with(about["parent"])
    if hasattr(os, "sched_setaffinity") and about["cores"]:
        os.sched_setaffinity(0, about["cores"])
    entry(words, Trust(named=frozenset(about["trust"])) if "trust" in about else None)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), sys.argv[2:])

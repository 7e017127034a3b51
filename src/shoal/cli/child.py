"""Entry point of the child process of one run; `sweep/runner.py` starts it."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from ..config.trust import Trust
from ..envs.host.guard import die_with
from .main import main as run


def main(about: dict[str, Any], words: list[str]) -> int:
    """Run `shoal` with these words on the given cores, or all; end when the parent process ends."""
    die_with(about["parent"])
    if hasattr(os, "sched_setaffinity") and about["cores"]:
        os.sched_setaffinity(0, about["cores"])
    return run(words, Trust(named=frozenset(about["trust"])))


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1]), sys.argv[2:]))

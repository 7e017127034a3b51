"""Processor time of another process: what a busy machine does not change much."""

from __future__ import annotations

import os
from pathlib import Path


def processor(pid: int) -> float:
    """Seconds of processor time that a process has used."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

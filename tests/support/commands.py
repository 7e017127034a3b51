"""The command line in processes of its own, and runs that are long enough to be interrupted."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TINY = (
    "--hidden 8 --layers 1 --games 4 --window 5 --eval-episodes 2 --evaluations 3 --save-every"
    " 100 --keep 3"
)


RUNS = {  # on-policy and recurrent, off-policy with everything a replay has
    "ppo": "ppo test/mortal --torso gru --minibatches 1 --steps 12000",
    "dqn": "dqn test/mortal --steps 12000 --warmup 100 --capacity 400 --batch 4 --length 4"
    " --updates 2 --priority 0.6",
}


def shoal_process(words: str, out: Path) -> subprocess.Popen:
    """The command line in a process of its own."""
    with (out / "log").open("a") as log:
        command = [sys.executable, "-m", "shoal", *words.split()]
        return subprocess.Popen(command, stdout=log, stderr=log)

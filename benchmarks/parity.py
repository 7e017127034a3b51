"""Thousands of episodes of `lbforaging` and `rware` played again by our native games, every step
compared.

python benchmarks/parity.py            # 1,000 episodes of every setting of the tests, about an hour
python benchmarks/parity.py 100
"""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
BATCH = 100  # episodes that are held in memory at a time


def main(episodes: int = 1000) -> None:
    for tests in map(importlib.import_module, ("test_lbf_parity", "test_rware_parity")):
        for env_id, options in tests.SETTINGS:
            happened: Counter = Counter()
            for start in range(0, episodes, BATCH):
                happened += Counter(
                    tests.duel(
                        env_id, options, min(BATCH, episodes - start), seed=10_000 + start
                    ).events
                )
            told = ", ".join(f"{event} {count:,}" for event, count in sorted(happened.items()))
            print(f"{env_id} {options or ''}: {episodes:,} episodes equal; {told}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))

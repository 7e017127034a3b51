"""Writes the tables of options into the algorithm pages, from the config dataclasses.

python docs/tables.py           # rewrite
python docs/tables.py --check   # say which page is out of date, exit 1 if any is
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from shoal.algorithms import find
from shoal.cli.info import options

BLOCK = re.compile(r"(<!-- options: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
PAGES = Path(__file__).parent / "algorithms"


def table(match: re.Match) -> str:
    """One algorithm's options as a Markdown table."""
    rows = [
        f"| `{flag}` | `{default}` | {meaning} |"
        for flag, default, meaning in options(find(match[2]).Config)
    ]
    return match[1] + "\n".join(
        ["| option | default | meaning |", "|---|---|---|", *rows, match[3]]
    )


def main(check: bool) -> int:
    stale = []
    for page in sorted(PAGES.glob("*.md")):
        text = page.read_text()
        fresh = BLOCK.sub(table, text)
        if fresh != text:
            stale.append(page.name)
            if not check:
                page.write_text(fresh)
    print(f"{'out of date' if check else 'rewritten'}: {', '.join(stale) or 'none'}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv[1:]))

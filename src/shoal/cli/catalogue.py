"""`shoal list`: what there is, printed from a file, as importing it all takes over a second.

python -m shoal.cli.catalogue     # writes the file anew; a test says when it must be
"""

from __future__ import annotations

from pathlib import Path

from .. import plugins
from ..errors import ShoalError
from .words import Trusting

FILE = Path(__file__).with_name("catalogue.txt")


def list_all(args: list[str], trust: Trusting) -> int:
    """`shoal list`."""
    if args in (["--help"], ["-h"]):
        print("shoal list: the algorithms and environments there are, a line each.")
        return 0
    if args:
        raise ShoalError(f"`shoal list` takes no arguments: leave out {args[0]!r}")
    print(FILE.read_text(encoding="utf-8"))
    if any(plugins.entries(kind) for kind in plugins.GROUPS):
        from .info import plugged

        print("\n".join(["From installed packages", *plugged(), ""]))
    print("One's own algorithm, torso, curiosity, game or callback is named <module>:<class>.")
    print("`shoal info <name>` tells more about one of them.")
    return 0


def write() -> None:
    """Write the file from what there is."""
    from .info import overview

    FILE.write_text(overview(), encoding="utf-8")


if __name__ == "__main__":
    write()

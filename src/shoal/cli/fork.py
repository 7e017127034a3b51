"""`shoal fork`: go on from a checkpoint of a run, in a new run with other settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..config.arguments import changed
from ..config.flags import whole
from ..config.trust import FLAG
from ..errors import ShoalError
from ..run import forking
from ..store import folder
from .train import code_of
from .words import Trusting, first

FORK = "shoal fork <run> [--at <steps>] [options]"
TITLE = (
    "Go on from a run's newest checkpoint, or from the one --at so many steps, in a new run with"
    " other settings: shoal fork runs/<run> --lr 1e-4 --steps 4e6. The run itself stays as it is;"
    " what is not said stays as there, and a fork without changes ends as the run does. An"
    f" environment of somebody's own, which the folder names, is only run with {FLAG}"
)


def fork(args: list[str], trust: Trusting) -> int:
    """Train a fork of a run."""
    word, rest = first(args, f"say which run to fork: {FORK}")
    if not word:
        print(f"{FORK}: {TITLE}")
        return 0
    run = Path(word)
    at, rest = _at(rest)
    config = folder.config_of(run, trust.files)
    # a name of its own, unless one is asked for
    config = replace(config, settings=replace(config.settings, name="", seeds=1))
    config = changed(config, rest, f"shoal fork {word}", TITLE)
    return code_of(forking.fork(run, config, at))


def _at(args: list[str]) -> tuple[int, list[str]]:
    """Split off `--at <steps>`."""
    for place, flag in enumerate(args):
        name, equals, value = flag.partition("=")
        if name == "--at":
            value = value if equals else "".join(args[place + 1 : place + 2])
            return _steps(value), args[:place] + args[place + (1 if equals else 2) :]
    return 0, args


def _steps(word: str) -> int:
    try:
        return whole(word)
    except ValueError:
        raise ShoalError(f"--at needs the steps of a checkpoint, not {word!r}") from None

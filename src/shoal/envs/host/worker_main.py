"""What a worker process runs: games of an arena, a probe of an environment, or a check.

`workers.py` and `watched.py` are the parent's side; `guard.py` ends what an environment leaves.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from . import guard


def main(about: dict[str, Any]) -> None:
    """Do the task given by the parent; the first answer says that the process is ready."""
    guard.fork(about["orders"], about["answers"], about["sign"])
    import faulthandler
    import traceback

    from ...errors import ShoalError

    faulthandler.enable()
    faulthandler.register(guard.FORWARDED, all_threads=False)
    say = _Answers(about["answers"], about["sign"])
    try:
        TASKS[about["task"]](about, say)
    except ShoalError as error:
        say({"error": str(error), "detail": error.detail, "exit_code": error.exit_code})
    except Exception as error:
        what = (
            f"{about['env']} does not keep the contract of environments:"
            f" {type(error).__name__}: {error}"
        )
        say({"error": what, "detail": traceback.format_exc(limit=-8), "exit_code": 2})


class _Answers:
    """Writes each answer as a line of JSON behind a sign."""

    def __init__(self, pipe: int, sign: str):
        self.pipe = pipe
        self.sign = sign
        self.owner = os.getpid()

    def __call__(self, what: Any) -> None:
        if os.getpid() != self.owner:  # an environment forked, and its child returned to here
            os._exit(1)
        line = f"{self.sign}{json.dumps(what, default=_to_python)}\n".encode()
        try:
            while line:
                line = line[os.write(self.pipe, line) :]
        except BrokenPipeError:
            pass  # the parent no longer reads; the loop over orders will end


def _to_python(number: Any) -> Any:
    """Convert a numpy number or array for JSON."""
    return number.tolist()


def _play(about: dict[str, Any], say: Callable[[Any], None]) -> None:
    """Answer every order: a part's number with the faults of its step, `DRAW` with pictures."""
    from .match import Hosted, from_json
    from .parts import DRAW
    from .shared import shared
    from .table import Table

    names = tuple(about["metrics"])
    teams = from_json(about["teams"])
    env = Hosted(about["env"], about["options"], teams, about["draws"], metric_names=names)
    with os.fdopen(about["memory"], "r+b") as memory:
        arrays = shared(memory, teams, about["games"], names)
        table = Table(env, arrays, range(*about["part"]), about["seed"])
    say([])
    while order := os.read(about["orders"], 1):
        say(table.render() if order[0] == DRAW else table.step(order[0]))
    table.close()


def _probe(about: dict[str, Any], say: Callable[[Any], None]) -> None:
    """Answer with teams and metrics; with `draws`, fail if the environment cannot render."""
    from .match import Hosted, close, to_json

    say([])
    env = Hosted(about["env"], about["options"], draws=about["draws"])
    match = env.open()
    teams, metrics = env.seen(match)
    say({"teams": to_json(teams), "metrics": metrics})
    close(match)


def _check(about: dict[str, Any], say: Callable[[Any], None]) -> None:
    from ..watched_check import narrate

    say([])
    narrate(about, say)


TASKS = {"play": _play, "probe": _probe, "check": _check}

if __name__ == "__main__":
    words = json.load(sys.stdin)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    main(words)

"""A worker process: plays its share of an arena's games until the pipe that orders come through is closed."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import sys
from typing import Any

from ..types import ShoalError
from .host import Hosted, Table, shared


def main(about: dict[str, Any]) -> None:
    """Answer every order with a line: the faults of that step, or the error that ends it all."""
    die_with(about["parent"])
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    env = Hosted(about["env"], about["options"])
    answers = os.fdopen(about["answers"], "w")
    try:
        with os.fdopen(about["memory"], "r+b") as memory:
            table = Table(env, shared(memory, env.teams, about["games"]), range(*about["part"]), about["seed"])
        _say(answers, [])  # ready
        while os.read(about["orders"], 1):
            _say(answers, table.step())
        table.close()
    except ShoalError as error:
        _say(answers, {"error": str(error), "detail": error.detail, "exit_code": error.exit_code})


def _say(answers: Any, what: Any) -> None:
    with contextlib.suppress(BrokenPipeError):  # nobody listens any more: the next read says so too
        answers.write(json.dumps(what) + "\n")
        answers.flush()


def die_with(parent: int) -> None:
    """Even while an environment hangs: Linux kills us when the parent's thread that started us is gone."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

"""Wait for compilers and compiled programs, which do not return to Python when a run stops."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

from ..envs.host.watched import POLL, Halted, never


def awaited(future: Future[Any], halted: Callable[[], bool]) -> Any:
    """The result of a future; raises `Halted` at once if the run is stopping."""
    while not future.done():
        if halted():
            raise Halted
        wait([future], POLL)
    return future.result()


def in_thread(call: Callable[..., Any], *args: Any, halted: Callable[[], bool] = never) -> Any:
    """The result of a call, which goes on in a thread if the run stops meanwhile."""
    if halted is never:
        return call(*args)
    pool = ThreadPoolExecutor(1)
    try:
        return awaited(pool.submit(call, *args), halted)
    finally:
        pool.shutdown(wait=False)

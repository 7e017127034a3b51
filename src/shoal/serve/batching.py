"""Requests that arrive together are decided together."""

from __future__ import annotations

import asyncio
import sys
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, NamedTuple

from ..errors import ShoalError
from .policy import Asked, Policies


class Busy(ShoalError):
    """More requests are waiting than the server keeps."""


class Waiting(NamedTuple):
    """A request in the queue."""

    asked: Asked
    answer: asyncio.Future[dict[str, Any]]


class Batcher:
    """Decides what arrived together; what arrives meanwhile is the next batch.

    A quick batch is decided right here: another thread would get the interpreter only after its
    switch interval, which is longer. A slow one has a thread, so that others are heard meanwhile.
    Two requests of one memory are never in the same batch: the second needs the first one's carry.
    """

    def __init__(
        self,
        policies: Policies,
        most: int,
        watch: Callable[[int, int, float], None] = lambda requests, games, seconds: None,
    ):
        self.policies = policies
        self.most = most  # requests that wait
        self.watch = watch  # is told each batch's requests, games and seconds
        self.queue: deque[Waiting] = deque()
        self._thread = ThreadPoolExecutor(1, "decide")
        self._task: asyncio.Task[None] | None = None

    async def act(self, asked: Asked) -> dict[str, Any]:
        """Actions by agent."""
        if len(self.queue) >= self.most:
            raise Busy(f"{self.most} requests are waiting already: ask again later")
        answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self.queue.append(Waiting(asked, answer))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())
        return await answer

    async def close(self) -> None:
        """Decide what is waiting, then end the thread."""
        if self._task is not None:
            with suppress(asyncio.CancelledError):
                await self._task
        self._thread.shutdown()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self.queue:
            await asyncio.sleep(0)  # others may have arrived with the first
            batch = self._take()
            start = time.perf_counter()
            games = sum(one.asked.seen.games for one in batch)
            asked = [one.asked for one in batch]
            try:
                if self.policies.seconds(games) < sys.getswitchinterval():
                    found = self.policies.decide(asked)
                else:
                    found = await loop.run_in_executor(self._thread, self.policies.decide, asked)
            except Exception as error:
                for one in batch:
                    if not one.answer.done():
                        one.answer.set_exception(error)
                continue
            self.watch(len(batch), games, time.perf_counter() - start)
            for one, actions in zip(batch, found, strict=True):
                if not one.answer.done():
                    one.answer.set_result(actions)

    def _take(self) -> list[Waiting]:
        """The next batch: in the order of arrival, as far as it fits."""
        left = self.policies.sizes[-1]
        batch: list[Waiting] = []
        later: list[Waiting] = []
        taken: set[int] = set()  # memories
        while self.queue and left:
            one = self.queue.popleft()
            if one.answer.done():  # who asked has gone
                continue
            memory = id(one.asked.memory)
            fits = one.asked.seen.games <= left
            if not fits or (one.asked.memory is not None and memory in taken):
                later.append(one)
                left = left if fits else 0
            else:
                batch.append(one)
                left -= one.asked.seen.games
            taken.add(memory)
        self.queue.extendleft(reversed(later))
        return batch

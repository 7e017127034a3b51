"""How many decisions a second `shoal serve` makes, and how long each takes, on loopback.

    python benchmarks/serve.py                      # all three measurements, about a minute
    python benchmarks/serve.py --run runs/my-run --seconds 5

A server is started in a process of its own, on the first core; the clients are on the others. A
decision is one agent's action.

- **rate, one game**: 64 connections over HTTP, each asking for one game at a time
- **rate, 32 games**: 8 WebSockets, each asking for 32 games at a time
- **latency**: requests of one game at 500 a second, sent when they are due, whoever waits
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import re
import subprocess
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import numpy as np
from processor import processor
from websockets.asyncio.client import connect

HTTP_CLIENTS = 64
SOCKETS = 8
SOCKET_GAMES = 32
RATE = 500  # requests a second, of the latency


class Load:
    """Answers of a server so far."""

    def __init__(self, agents: int):
        self.agents = agents
        self.decisions = 0
        self.seconds: list[float] = []
        self.late: list[float] = []  # seconds between when a request was due and when it was sent

    def count(self, games: int, start: float) -> None:
        self.decisions += games * self.agents
        self.seconds.append(time.perf_counter() - start)


class Connection:
    """A connection over HTTP that is kept; written by hand, as clients must cost little."""

    def __init__(self, place: str, body: bytes):
        self.host, _, port = place.removeprefix("http://").rpartition(":")
        self.port = int(port)
        head = f"POST /act HTTP/1.1\r\nHost: {self.host}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.request = head.encode() + body

    async def open(self) -> Connection:
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        return self

    async def ask(self) -> None:
        self.writer.write(self.request)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        size = re.search(rb"content-length: (\d+)", head)
        if not head.startswith(b"http/1.1 200") or not size:
            raise SystemExit(f"a request was refused: {head!r}")
        await self.reader.readexactly(int(size[1]))


async def _http(place: str, body: bytes, load: Load, until: float) -> None:
    connection = await Connection(place, body).open()
    while time.perf_counter() < until:
        start = time.perf_counter()
        await connection.ask()
        load.count(1, start)


async def _socket(place: str, body: str, load: Load, until: float) -> None:
    async with connect(f"{place.replace('http', 'ws')}/act") as socket:
        while time.perf_counter() < until:
            start = time.perf_counter()
            await socket.send(body)
            if "actions" not in json.loads(await socket.recv()):
                raise SystemExit("a request was refused")
            load.count(SOCKET_GAMES, start)


async def _steady(place: str, body: bytes, load: Load, seconds: float) -> None:
    """Open-loop: a request is sent when it is due, and timed from then, whoever still waits.

    Tasks are made one by one: to make all of them first would delay the first hundredth of the
    requests, and so the quantile that is asked for. Connections take turns, as a server closes one
    that is idle for seconds."""
    free = deque([await Connection(place, body).open() for _ in range(HTTP_CLIENTS)])

    async def one(due: float) -> None:
        load.late.append(time.perf_counter() - due)
        connection = free.popleft() if free else await Connection(place, body).open()
        await connection.ask()
        free.append(connection)
        load.count(1, due)

    begin = time.perf_counter() + 0.1
    asked: list[asyncio.Task[None]] = []
    for i in range(int(seconds * RATE)):
        due = begin + i / RATE
        await asyncio.sleep(max(due - time.perf_counter(), 0.0))
        asked.append(asyncio.create_task(one(due)))
    await asyncio.gather(*asked)


async def _rates(place: str, seconds: float, server: int) -> None:
    spec = httpx.get(f"{place}/spec").json()
    agents = [agent for team in spec["teams"].values() for agent in team["agents"]]
    rng = np.random.default_rng(0)

    def body(*games: int) -> str:
        rows = {
            agent["name"]: rng.normal(size=(*games, *agent["observation"])).round(4).tolist()
            for agent in agents
        }
        return json.dumps({"observations": rows})

    single = body().encode()

    async def measure(label: str, go: Callable[[Load], Awaitable[Any]]) -> None:
        load = Load(len(agents))
        spent = processor(server)
        start = time.perf_counter()
        await go(load)
        passed = time.perf_counter() - start
        cost = 1e3 * (processor(server) - spent) / len(load.seconds)
        p50, p99 = np.quantile(load.seconds, (0.5, 0.99)) * 1e3
        rate = load.decisions / passed
        late = f", sent up to {1e3 * max(load.late):.1f} ms late" if load.late else ""
        print(
            f"{label}: {rate:,.0f} decisions/s, p50 {p50:.1f} ms, p99 {p99:.1f} ms,"
            f" {cost:.2f} ms of processor time per request{late}",
            flush=True,
        )

    until = lambda: time.perf_counter() + seconds  # noqa: E731
    await measure(
        f"rate, one game, {HTTP_CLIENTS} HTTP clients",
        lambda load: _many(HTTP_CLIENTS, _http, place, single, load, until()),
    )
    await measure(
        f"rate, {SOCKET_GAMES} games, {SOCKETS} WebSockets",
        lambda load: _many(SOCKETS, _socket, place, body(SOCKET_GAMES), load, until()),
    )
    await measure(f"latency, {RATE} requests/s", lambda load: _steady(place, single, load, seconds))


async def _many(count: int, client: Callable[..., Awaitable[None]], *args: Any) -> None:
    await asyncio.gather(*(client(*args) for _ in range(count)))


def main() -> int:
    """Start a server, measure it and stop it."""
    parser = argparse.ArgumentParser(description="measure shoal serve")
    parser.add_argument("--run", default="zoo:spread")
    parser.add_argument("--seconds", type=float, default=10.0)
    given = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    words = [sys.executable, "-m", "shoal", "serve", given.run, "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        os.sched_setaffinity(server.pid, cores[:1])
        os.sched_setaffinity(0, cores[1:] or cores)
        try:
            assert server.stdout is not None
            lines = iter(server.stdout)
            found = (re.search(r"http://\S+?:\d+", line) for line in lines)
            place = next((match[0] for match in found if match), "")
            print(f"load of the machine before: {os.getloadavg()[0]:.1f}", flush=True)
            gc.freeze()  # the client's own pauses are not the server's
            asyncio.run(_rates(place, given.seconds, server.pid))
        finally:
            server.terminate()
    return 0


if __name__ == "__main__":
    sys.exit(main())

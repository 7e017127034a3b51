"""The clients of `benchmarks/serve.py`, on a server that only counts."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path

from helpers import with_pages

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
if BENCHMARKS.is_dir():
    sys.path.insert(0, str(BENCHMARKS))
    import serve

pytestmark = with_pages  # the benchmarks are where the pages are
ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


def test_no_connection_idles_until_the_server_closes_it():
    asked: Counter[int] = Counter()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = writer.get_extra_info("peername")[1]
        asked[client] += 0
        try:
            while await reader.readuntil(b"{}"):
                asked[client] += 1
                writer.write(ANSWER)
        except asyncio.IncompleteReadError:
            writer.close()

    async def go() -> None:
        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        place = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        load = serve.Load(1)
        await serve._steady(place, b"{}", load, 1.0)
        assert load.decisions == serve.RATE
        server.close()

    asyncio.run(go())
    assert len(asked) >= serve.HTTP_CLIENTS and min(asked.values()) > 0

"""The server: pages, fragments of them, series as JSON, and events that say what changed."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gzip
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from ..config.trust import NOTHING, Trust
from ..errors import ShoalError
from . import pages, run_files
from .guard import Guard, Rules
from .index import Index, Run
from .jobs import Jobs
from .series import Library
from .tables import Query, runs_table

EVERY = 1.0  # seconds between two looks at the folder
BEAT = 15.0  # seconds after which a quiet stream says that it lives
STREAMS = 1_000  # clients that hear events at once
CHOSEN = 200  # runs that a request may name
METRICS = 100  # metrics that a request may name
KEPT = 128  # answers kept until the folder changes
HTML = "text/html"


PACKING = 6  # of gzip: 9 takes more than twice as long for the same size


class Body(NamedTuple):
    """What is answered, plain and compressed: done once for all who ask."""

    plain: bytes
    packed: bytes

    @classmethod
    def of(cls, content: bytes) -> Body:
        return cls(content, gzip.compress(content, PACKING))

    def to(self, request: Request, kind: str, **headers: str) -> Response:
        """The answer, as the client can read it."""
        headers["vary"] = "accept-encoding"
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return Response(self.plain, media_type=kind, headers=headers)
        headers["content-encoding"] = "gzip"
        return Response(self.packed, media_type=kind, headers=headers)


class Feed:
    """Looks at the folder while anybody listens, and tells all of them what changed."""

    def __init__(self, index: Index, every: float = EVERY):
        self.index = index
        self.every = every
        self.listeners = 0
        self.changed = asyncio.Condition()
        self.looking = asyncio.Lock()
        self.looked = -every
        self.news: tuple[int, list[str]] = (index.version, [])
        self.over = False  # whether the server ends

    async def watch(self) -> None:
        """Look again and again."""
        while True:
            if self.listeners:
                await self.look()
            await asyncio.sleep(self.every)

    async def look(self) -> None:
        """Look at the folder, once for all who ask at the same time."""
        async with self.looking:
            if time.monotonic() < self.looked + self.every:
                return
            changed = await run_in_threadpool(self.index.refresh)
            self.looked = time.monotonic()
        if changed or self.index.version != self.news[0]:
            async with self.changed:
                self.news = (self.index.version, sorted(changed)[:CHOSEN])
                self.changed.notify_all()

    async def end(self) -> None:
        """End all streams."""
        async with self.changed:
            self.over = True
            self.changed.notify_all()

    async def events(self) -> AsyncIterator[str]:
        """What one client hears: the version of the folder, and the runs that changed."""
        self.listeners += 1
        try:
            heard = self.index.version
            yield f"retry: 2000\ndata: {json.dumps({'version': heard, 'changed': []})}\n\n"
            while True:
                try:
                    async with asyncio.timeout(BEAT), self.changed:
                        await self.changed.wait_for(lambda: self.over or self.news[0] != heard)  # noqa: B023
                except TimeoutError:
                    yield ": still here\n\n"
                    continue
                if self.over:
                    return
                heard, changed = self.news
                yield f"data: {json.dumps({'version': heard, 'changed': changed})}\n\n"
        finally:
            self.listeners -= 1


class Site:
    """Answers to requests about one folder."""

    def __init__(self, index: Index, rules: Rules, trust: Trust = NOTHING):
        self.index = index
        self.rules = rules
        self.trust = trust
        self.library = Library()
        self.jobs = Jobs(trust.everything)
        self.feed = Feed(index)
        self.answers: dict[tuple, asyncio.Future[Body]] = {}
        self.of_version = -1

    def look(self, request: Request) -> pages.Look:
        return pages.Look(True, self.rules.has_token(request), self.trust)

    async def all_runs(self, request: Request) -> Response:
        if not self.feed.listeners:
            await self.feed.look()
        query = _query(request)
        look = self.look(request)
        body = await self._kept(pages.all_runs, self.index, query, look)
        return body.to(request, HTML)

    async def table(self, request: Request) -> Response:
        body = await self._kept(runs_table, self.index, _query(request))
        return body.to(request, HTML)

    async def compare(self, request: Request) -> Response:
        query = _query(request)
        chosen = [run for slug, run in self.index.runs.items() if slug in query.chosen]
        look = self.look(request)
        body = await self._kept(pages.compare, tuple(chosen), look, key=query.chosen)
        return body.to(request, HTML)

    async def one_run(self, request: Request) -> Response:
        if not self.feed.listeners:
            await self.feed.look()
        run = self._run(request)
        look = self.look(request)
        told = self.jobs.told(run)
        return HTMLResponse(await run_in_threadpool(pages.one_run, self.index, run, look, told))

    async def head(self, request: Request) -> Response:
        run = self._run(request)
        return HTMLResponse(pages.head(run, self.look(request), self.jobs.told(run)))

    async def data(self, request: Request) -> Response:
        """A run's series: the metrics asked for, and the names of all."""
        run = self._run(request)
        if run.status == "broken":
            return JSONResponse({"metrics": [], "series": {}})
        names = request.query_params.getlist("metric")[:METRICS]
        body = await self._kept(self._series, run.path, tuple(names))
        return body.to(request, "application/json")

    def _series(self, run: Path, names: tuple[str, ...]) -> str:
        return json.dumps(self.library.json(run, list(names)))

    async def file(self, request: Request) -> Response:
        run = self._run(request)
        kind = request.path_params["kind"]
        name = request.path_params["name"]
        path = await run_in_threadpool(run_files.find, self.index.root, run, kind, name)
        if path is None:
            raise HTTPException(404, "there is no such file")
        return FileResponse(path)

    async def events(self, request: Request) -> Response:
        if self.feed.listeners >= STREAMS:
            raise HTTPException(503, "too many pages are open")
        return StreamingResponse(self.feed.events(), media_type="text/event-stream")

    async def act(self, request: Request) -> Response:
        """Stop, resume or evaluate a run."""
        run = self._run(request)
        try:
            await run_in_threadpool(self.jobs.do, request.path_params["word"], run)
        except (ShoalError, OSError) as error:
            raise HTTPException(409, str(error)) from None
        return RedirectResponse(f"/run/{run.slug}", 303)

    async def asset(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in pages.ASSETS:
            raise HTTPException(404, "there is no such file")
        headers = {"cache-control": "no-cache"}
        return _asset(name).to(request, pages.ASSETS[name], **headers)

    def _run(self, request: Request) -> Run:
        run = self.index.runs.get(request.path_params["slug"])
        if run is None:
            raise HTTPException(404, "there is no such run")
        return run

    async def _kept(self, make: Callable[..., str], *args: Any, key: Any = None) -> Body:
        """What a function makes: made once, for all who ask, until the folder changes."""
        if self.of_version != self.index.version:
            self.answers.clear()
            self.of_version = self.index.version
        about = (make, *args) if key is None else (make, key)
        if about not in self.answers:
            if len(self.answers) >= KEPT:
                self.answers.pop(next(iter(self.answers)))
            self.answers[about] = asyncio.ensure_future(run_in_threadpool(_made, make, *args))
        try:
            return await asyncio.shield(self.answers[about])
        except Exception:
            self.answers.pop(about, None)
            raise


def _made(make: Callable[..., str], *args: Any) -> Body:
    return Body.of(make(*args).encode("utf-8", "replace"))


@functools.cache
def _asset(name: str) -> Body:
    return Body.of(pages.asset(name))


def _query(request: Request) -> Query:
    """The query of a request; nonsense counts as nothing."""
    asked = request.query_params
    page = asked.get("page", "")
    return Query(
        asked.get("q", "")[:200],
        int(page) if page.isdecimal() and len(page) < 6 else 0,
        frozenset(asked.getlist("run")[:CHOSEN]),
    )


def make(index: Index, rules: Rules, trust: Trust = NOTHING) -> Starlette:
    """The application."""
    site = Site(index, rules, trust)

    @contextlib.asynccontextmanager
    async def watching(app: Starlette) -> AsyncIterator[None]:
        task = asyncio.create_task(site.feed.watch())
        try:
            yield
        finally:
            task.cancel()

    routes = [
        Route("/", site.all_runs),
        Route("/table", site.table),
        Route("/compare", site.compare),
        Route("/events", site.events),
        Route("/run/{slug}", site.one_run),
        Route("/run/{slug}/head", site.head),
        Route("/run/{slug}/{word}", site.act, methods=["POST"]),
        Route("/data/{slug}", site.data),
        Route("/file/{slug}/{kind}/{name}", site.file),
        Route("/static/{name}", site.asset),
    ]
    app = Starlette(
        routes=routes,
        lifespan=watching,
        middleware=[Middleware(Guard, rules=rules), Middleware(GZipMiddleware, 2000, PACKING)],
        exception_handlers={HTTPException: _sentence},
    )
    app.state.site = site
    return app


async def _sentence(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return PlainTextResponse(error.detail, error.status_code)


def server_of(app: Starlette, rules: Rules) -> Any:
    """A uvicorn server, which ends the streams before it waits for clients to go."""
    import uvicorn

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: Any = None) -> None:
            await app.state.site.feed.end()
            await super().shutdown(sockets)

    return Server(
        uvicorn.Config(
            app,
            host=rules.host,
            port=rules.port,
            log_level="warning",
            timeout_graceful_shutdown=2,
            access_log=False,
            server_header=False,
        )
    )


def serve(index: Index, rules: Rules, trust: Trust = NOTHING) -> None:
    """Serve until Ctrl-C."""
    server_of(make(index, rules, trust), rules).run()

"""The server's pages: act, sessions, what it plays, health and metrics."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from ..access import App, Refusal, Rules
from ..errors import ShoalError, did_you_mean
from ..store.observations import read
from .batching import Batcher, Busy
from .guard import Guard
from .policy import Asked, Memory, Policies
from .sessions import Sessions, TooMany, Unknown

KEYS = ("observations", "legal", "alive", "session", "reset")  # of a request
STATUS: dict[type[ShoalError], int] = {Unknown: 404, TooMany: 429, Busy: 503}  # others: 400
BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5)  # seconds


@dataclass(frozen=True)
class Limits:
    """What a server bears."""

    body: int = 1_000_000  # bytes of a request
    waiting: int = 1_000  # requests
    sessions: int = 1_000  # WebSockets are sessions, too
    idle: float = 600.0  # seconds until a session that is not used expires


class TooLarge(ShoalError):
    """A request's body is too large."""


class Server:
    """One player's policies, and all that clients may ask of it."""

    def __init__(self, policies: Policies, limits: Limits, title: str):
        self.policies = policies
        self.limits = limits
        self.title = title
        self.sessions = Sessions(limits.sessions, limits.idle)
        self.sockets = 0
        registry = CollectorRegistry()
        self._registry = registry
        self._answers = Counter(
            "shoal_requests", "Answers by status", ["status"], registry=registry
        )
        self._seconds = Histogram(
            "shoal_act_seconds", "Until an answer", buckets=BUCKETS, registry=registry
        )
        self._decisions = Counter("shoal_decisions", "Actions of one agent", registry=registry)
        self._batches = Counter("shoal_batches", "Batches", registry=registry)
        self._games = Counter("shoal_batch_games", "Games in all batches", registry=registry)
        self._busy = Counter("shoal_batch_seconds", "Spent on batches", registry=registry)
        open_now = Gauge("shoal_sessions", "Open sessions and sockets", registry=registry)
        open_now.set_function(lambda: len(self.sessions) + self.sockets)
        waiting = Gauge("shoal_waiting", "Requests that wait for a batch", registry=registry)
        self.batcher = Batcher(policies, limits.waiting, self._watch)
        waiting.set_function(lambda: len(self.batcher.queue))

    def app(self, host: str, token: str) -> App:
        """The ASGI application."""
        routes = [
            Route("/act", self._act, methods=["POST"]),
            Route("/sessions", self._open, methods=["POST"]),
            Route("/sessions/{name}", self._close, methods=["DELETE"]),
            Route("/spec", self._spec),
            Route("/health", self._health),
            Route("/metrics", self._metrics),
            WebSocketRoute("/act", self._socket),
        ]
        inner = Starlette(
            routes=routes,
            lifespan=self._lifespan,
            exception_handlers={HTTPException: self._http_error, Exception: self._broke},
        )
        return Guard(inner, Rules(host, token), self._refused)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        await self.batcher.close()

    # -- deciding ----------------------------------------------------------------------------------

    async def decide(self, asked: Any, memory: Memory | None = None) -> dict[str, Any]:
        """Answer one request, in JSON's types."""
        if not isinstance(asked, dict):
            raise ShoalError('a request is a JSON object, such as {"observations": {…}}')
        for key in asked:
            if key not in KEYS:
                hint = did_you_mean(key, KEYS)
                raise ShoalError(f"a request has no {key!r}{hint}: it has {', '.join(KEYS)}")
        if "session" in asked:
            memory = self.sessions.use(asked["session"])
        elif memory is None and self.policies.remembers:
            raise ShoalError(
                "this policy remembers its games: open a session by POST /sessions, or a WebSocket"
            )
        player = self.policies.player
        given = (asked.get("observations"), asked.get("legal"), asked.get("alive"))
        seen = read(player.teams, player.agents, *given)
        largest = self.policies.sizes[-1]
        if seen.games > largest:
            raise ShoalError(
                f"these are {seen.games} games, and a request may have {largest}: ask in parts"
            )
        reset = asked.get("reset", False)
        if memory is not None:
            memory.expect(seen.games, reset)
        actions = await self.batcher.act(Asked(seen, memory, reset))
        self._decisions.inc(len(actions) * seen.games)
        return {
            "actions": {
                agent: action.tolist() if isinstance(action, np.ndarray) else action
                for agent, action in actions.items()
            }
        }

    def _watch(self, requests: int, games: int, seconds: float) -> None:
        self._batches.inc()
        self._games.inc(games)
        self._busy.inc(seconds)

    # -- pages -------------------------------------------------------------------------------------

    async def _act(self, request: Request) -> Response:
        start = time.perf_counter()

        async def answered() -> Response:
            return JSONResponse(await self.decide(_parsed(await self._body(request))))

        response = await self._answer(answered)
        self._seconds.observe(time.perf_counter() - start)
        return response

    async def _open(self, request: Request) -> Response:
        async def opened() -> Response:
            await self._body(request)
            return JSONResponse({"session": self.sessions.open(), "idle": self.limits.idle}, 201)

        return await self._answer(opened)

    async def _close(self, request: Request) -> Response:
        async def closed() -> Response:
            self.sessions.close(request.path_params["name"])
            return Response(status_code=204)

        return await self._answer(closed)

    async def _spec(self, request: Request) -> Response:
        player = self.policies.player
        teams = {}
        for team, spec in player.teams.items():
            sizes = zip(
                spec.agents,
                spec.obs_sizes or (spec.obs,) * spec.n,
                spec.action_sizes or (spec.action.size,) * spec.n,
                strict=True,
            )
            agents = [
                {"name": agent, "observation": list(spec.pixels or (obs,)), "actions": actions}
                for agent, obs, actions in sizes
                if agent in player.agents
            ]
            if agents:
                action = spec.to_json()["action"]
                algorithm = player.algorithms[team].name
                teams[team] = {"algorithm": algorithm, "action": action, "agents": agents}
        limits = vars(self.limits) | {"games": self.policies.sizes[-1]}
        facts = {"env": player.config.env, "steps": player.steps, "greedy": self.policies.greedy}
        facts |= {"remembers": self.policies.remembers, "teams": teams, "limits": limits}
        return JSONResponse(facts)

    async def _health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok", "policy": self.title})

    async def _metrics(self, request: Request) -> Response:
        text = generate_latest(self._registry)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _socket(self, socket: WebSocket) -> None:
        """A connection is a session of its own; each message is answered by one."""
        if len(self.sessions) + self.sockets >= self.limits.sessions:
            await socket.close(1013, "too many sessions are open")
            return
        await socket.accept()
        self.sockets += 1
        memory = Memory()
        try:
            while True:
                text = await asyncio.wait_for(socket.receive_text(), self.limits.idle)
                await socket.send_text(json.dumps(await self._message(text, memory)))
        except WebSocketDisconnect:
            pass
        except KeyError:
            await socket.close(1003, "messages are text")
        except TimeoutError:
            await socket.close(1000, "nothing was asked for too long")
        finally:
            self.sockets -= 1

    async def _message(self, text: str, memory: Memory) -> dict[str, Any]:
        start = time.perf_counter()
        try:
            return await self.decide(_parsed(text.encode()), memory)
        except ShoalError as error:
            return {"error": _sentence(error)}
        finally:
            self._seconds.observe(time.perf_counter() - start)

    # -- reading and refusing ----------------------------------------------------------------------

    async def _body(self, request: Request) -> bytes:
        """A request's body, as far as it is not too large."""
        most = self.limits.body
        parts: list[bytes] = []
        size = 0
        async for part in request.stream():
            size += len(part)
            if size > most:
                raise TooLarge(f"a request may have {most:,} bytes: ask in parts")
            parts.append(part)
        return b"".join(parts)

    async def _answer(self, page: Callable[[], Awaitable[Response]]) -> Response:
        """A page, or the sentence by which it is refused."""
        try:
            response = await page()
        except TooLarge as error:
            response = _refusal(413, str(error))
        except ShoalError as error:
            response = _refusal(STATUS.get(type(error), 400), _sentence(error))
        except ClientDisconnect:
            response = Response(status_code=400)
        self._answers.labels(response.status_code).inc()
        return response

    def _refused(self, wrong: Refusal) -> App:
        self._answers.labels(wrong.status).inc()
        return _refusal(wrong.status, wrong.sentence)

    async def _http_error(self, request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 500
        asked = f"{request.method} {request.url.path[:80]}"
        sentence = f"there is no {asked}: docs/serving.md lists what can be asked"
        self._answers.labels(status).inc()
        return _refusal(status, sentence)

    async def _broke(self, request: Request, error: Exception) -> Response:
        self._answers.labels(500).inc()
        return _refusal(500, "the policy could not decide: see the server's log")


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise ShoalError(
            'this is not JSON: send an object, such as {"observations": {…}}'
        ) from None


def _sentence(error: ShoalError) -> str:
    return " ".join(str(error).split())


def _refusal(status: int, sentence: str) -> JSONResponse:
    return JSONResponse({"error": sentence}, status)

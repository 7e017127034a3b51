"""Who may ask the server for what: hosts, the token, origins, and headers of every answer."""

from __future__ import annotations

import ipaddress
import secrets
import socket
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from .pages import ONLY_OURS

HEADERS = {
    "content-security-policy": f"{ONLY_OURS}; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
METHODS = ("GET", "HEAD", "POST")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class Rules:
    """Where the server listens, and the token that it wants."""

    host: str = "127.0.0.1"
    port: int = 8765
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))

    @property
    def open(self) -> bool:
        """Whether reading needs no token."""
        return is_loopback(self.host)

    @property
    def cookie(self) -> str:
        """Cookies do not know ports, so the name does."""
        return f"shoal-live-{self.port}"

    def knows_host(self, given: str) -> bool:
        """Whether a Host header names this server: by address or by a name of this machine.

        A name that somebody else's server resolves to this address (DNS rebinding) is refused."""
        try:
            host = urlsplit(f"//{given}").hostname or ""
        except ValueError:
            return False
        if host in ("localhost", self.host.lower()):
            return True
        try:
            address = ipaddress.ip_address(host)
            return address.is_loopback or not self.open
        except ValueError:
            ours = {socket.gethostname().lower(), socket.getfqdn().lower()}
            return not self.open and host in ours

    def has_token(self, request: HTTPConnection) -> bool:
        """Whether a request has the token, in its cookie or as `Authorization: Bearer`."""
        bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
        given = (request.cookies.get(self.cookie, ""), bearer)
        return any(secrets.compare_digest(one.encode(), self.token.encode()) for one in given)

    def same_origin(self, headers: Headers) -> bool:
        """Whether a request that changes something comes from our own page, or from no browser."""
        origin = headers.get("origin")
        if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            return False
        if origin is None:  # every browser sends it with a POST
            return "sec-fetch-site" not in headers
        return urlsplit(origin).netloc == headers.get("host", "")


class Guard:
    """Checks every request before the application sees it, and adds the headers to its answer."""

    def __init__(self, app: Any, rules: Rules):
        self.app = app
        self.rules = rules

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self.app)(scope, receive, with_headers)

    def _refusal(self, scope: Any) -> Response | None:
        """The answer to a request that is not let through, or that brings the token."""
        request = HTTPConnection(scope)
        rules = self.rules
        if not rules.knows_host(request.headers.get("host", "")):
            return PlainTextResponse("this server does not go by that name", 421)
        if scope["method"] not in METHODS:
            return PlainTextResponse("only GET and POST are understood", 405)
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token")
        if given and scope["method"] == "GET":
            return self._welcome(given[0], scope["path"])
        if not rules.open and not rules.has_token(request):
            return PlainTextResponse(
                "this page needs the token: open the address that shoal live printed", 401
            )
        if scope["method"] == "POST":
            if not rules.has_token(request):
                return PlainTextResponse("this needs the token that shoal live printed", 403)
            if not rules.same_origin(request.headers):
                return PlainTextResponse("this was asked by another page", 403)
        return None

    def _welcome(self, token: str, path: str) -> Response:
        """Keep the right token in a cookie, and out of the address."""
        if not secrets.compare_digest(token.encode(), self.rules.token.encode()):
            return PlainTextResponse("that is not the token of this server", 401)
        # one slash: `//host` would lead elsewhere
        answer = RedirectResponse("/" + path.lstrip("/\\"), 303)
        answer.set_cookie(self.rules.cookie, token, httponly=True, samesite="strict", path="/")
        return answer

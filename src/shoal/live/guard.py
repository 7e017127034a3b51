"""Who may see the page and who may change runs, and headers of every answer."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from .. import access
from ..access import App, Headers, Refusal, Scope
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


@dataclass(frozen=True)
class Rules(access.Rules):
    """Where the page is; it always has a token, which reading on this machine does not need."""

    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    port: int = 8765

    @property
    def cookie(self) -> str:
        """Cookies do not know ports, so the name does."""
        return f"shoal-live-{self.port}"

    def has_token(self, request: HTTPConnection) -> bool:
        """Whether a request has the token, in its cookie or as `Authorization: Bearer`."""
        cookie = request.cookies.get(self.cookie, "")
        return self.is_token(cookie) or self.has_bearer(request.headers)


def same_origin(headers: Headers) -> bool:
    """Whether a request that changes something comes from our own page, or from no browser."""
    origin = headers.get("origin")
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    if origin is None:  # every browser sends it with a POST
        return "sec-fetch-site" not in headers
    return urlsplit(origin).netloc == headers.get("host", "")


class Guard(access.Guard):
    """Also checks who changes anything, keeps the token, and adds the headers to every answer."""

    rules: Rules  # type: ignore[reportIncompatibleVariableOverride]

    def __init__(self, app: App, rules: Rules):
        super().__init__(self._with_welcome, rules, _refused)
        self.site = app

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "websocket":
            return

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        await super().__call__(scope, receive, with_headers)

    def why_not(self, scope: Scope, headers: Headers) -> Refusal | None:
        if wrong := super().why_not(scope, headers):
            return wrong
        if scope["method"] not in METHODS:
            return Refusal(405, "only GET and POST are understood")
        given = _given(scope)
        if given:
            right = self.rules.is_token(given)
            return None if right else Refusal(401, "that is not the token of this server")
        has_token = self.rules.has_token(HTTPConnection(scope))
        if not self.rules.local and not has_token:
            return Refusal(401, "this page needs the token: open the address shoal live printed")
        if scope["method"] == "POST" and not has_token:
            return Refusal(403, "this needs the token that shoal live printed")
        if scope["method"] == "POST" and not same_origin(headers):
            return Refusal(403, "this was asked by another page")
        return None

    async def _with_welcome(self, scope: Scope, receive: Any, send: Any) -> None:
        """Keep a token that came in the address in a cookie, and out of the address."""
        token = _given(scope)
        if not token:
            return await self.site(scope, receive, send)
        # one slash: `//host` would lead elsewhere
        answer = RedirectResponse("/" + scope["path"].lstrip("/\\"), 303)
        answer.set_cookie(self.rules.cookie, token, httponly=True, samesite="strict", path="/")
        await answer(scope, receive, send)


def _given(scope: Scope) -> str:
    """The token in the address of a page, if there is one."""
    if scope["type"] != "http" or scope["method"] != "GET":
        return ""
    return parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]


def _refused(wrong: Refusal) -> Response:
    return PlainTextResponse(wrong.sentence, wrong.status)

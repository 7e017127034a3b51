"""Who may ask: hosts, origins and the token, checked before anything is read."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ..errors import ShoalError

LOCAL = ("localhost", "127.0.0.1", "::1")
OPEN = ("/health",)  # needs no token
Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]


class Refusal(NamedTuple):
    """Why a request is refused."""

    status: int
    sentence: str


def is_local(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


class Guard:
    """Refuses names of other hosts, so that no page can rebind its own name to this machine,
    pages of other origins, and requests without the token."""

    def __init__(self, app: App, host: str, token: str, refuse: Callable[[Refusal], App]):
        if not token and not is_local(host):
            raise ShoalError(f"{host} can be reached from elsewhere: give a token")
        self.app = app
        # behind any address a server has names that it cannot know
        self.names = {*LOCAL, host} if is_local(host) else None
        self.token = token.encode()
        self.refuse = refuse

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        app = self.app
        if scope["type"] != "lifespan" and (wrong := self.why_not(scope)):
            app = self.refuse(wrong)
        await app(scope, receive, send)

    def why_not(self, scope: Scope) -> Refusal | None:
        """Why a request is refused, if it is."""
        headers = {
            name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]
        }
        host = _name(f"//{headers.get('host', '')}")
        if self.names is not None and host not in self.names:
            return Refusal(421, f"this server is not {host!r}: ask it as 127.0.0.1")
        if "origin" in headers and _name(headers["origin"]) not in {host, *LOCAL}:
            return Refusal(403, "pages of other origins may not ask this server")
        if self.token and scope["path"] not in OPEN and not self._known(headers):
            return Refusal(401, "the token is missing or wrong: send Authorization: Bearer <token>")
        return None

    def _known(self, headers: Mapping[str, str]) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(given.strip().encode("latin-1"), self.token)
        return kind.lower() == "bearer" and right


def _name(address: str) -> str:
    """The host's name in an address."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""

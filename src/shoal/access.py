"""Who may send requests to a server: host and token, checked before anything is read."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from .errors import ShoalError

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]
Headers = Mapping[str, str]  # by lower-case name


class Refusal(NamedTuple):
    """Why a request is refused."""

    status: int
    sentence: str


def is_local(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True)
class Rules:
    """Where a server listens, and the token that requests must have; empty for none."""

    host: str = "127.0.0.1"
    token: str = ""

    def __post_init__(self) -> None:
        if not self.token and not self.local:
            raise ShoalError(f"{self.host} can be reached from elsewhere: give a token")

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the server."""
        return is_local(self.host)

    def knows_host(self, given: str) -> bool:
        """Whether a Host header may name this server.

        A server without a token refuses names other than this machine's: a stranger's name may
        resolve to it (DNS rebinding). A server that others reach has a token, and may have any
        name."""
        name = name_in(f"//{given}")
        return not self.local or name == self.host.lower() or is_local(name)

    def is_token(self, given: str) -> bool:
        """Whether this is the token, compared in constant time."""
        return bool(self.token) and hmac.compare_digest(given.encode(), self.token.encode())

    def has_bearer(self, headers: Headers) -> bool:
        """Whether a request has the token as `Authorization: Bearer`."""
        kind, _, given = headers.get("authorization", "").partition(" ")
        return kind.lower() == "bearer" and self.is_token(given.strip())


class Guard:
    """Checks every request before the application sees it; a subclass adds checks of its own."""

    def __init__(self, app: App, rules: Rules, refuse: Callable[[Refusal], App]):
        self.app = app
        self.rules = rules
        self.refuse = refuse

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        app = self.app
        if scope["type"] != "lifespan" and (wrong := self.why_not(scope, headers_of(scope))):
            app = self.refuse(wrong)
        await app(scope, receive, send)

    def why_not(self, scope: Scope, headers: Headers) -> Refusal | None:
        """Why a request is refused, if it is."""
        host = headers.get("host", "")
        if not self.rules.knows_host(host):
            return Refusal(421, f"this server is not {host[:80]!r}: ask it as 127.0.0.1")
        return None


def headers_of(scope: Scope) -> dict[str, str]:
    """A request's headers."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}


def name_in(address: str) -> str:
    """The host's name in an address, in lower case; empty if there is none."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""

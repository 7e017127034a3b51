"""Who may ask for actions."""

from __future__ import annotations

from .. import access
from ..access import Headers, Refusal, Scope, is_local, name_in

OPEN = ("/health",)  # needs no token


class Guard(access.Guard):
    """Also refuses pages of other origins, and requests without the token if there is one."""

    def why_not(self, scope: Scope, headers: Headers) -> Refusal | None:
        if wrong := super().why_not(scope, headers):
            return wrong
        if "origin" in headers and not _ours(headers["origin"], headers.get("host", "")):
            return Refusal(403, "pages of other origins may not ask this server")
        wants = self.rules.token and scope["path"] not in OPEN
        if wants and not self.rules.has_bearer(headers):
            return Refusal(401, "the token is missing or wrong: send Authorization: Bearer <token>")
        return None


def _ours(origin: str, host: str) -> bool:
    """Whether a page comes from this machine or from the host that it asks, by any port."""
    name = name_in(origin)
    return is_local(name) or (bool(name) and name == name_in(f"//{host}"))

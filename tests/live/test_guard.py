"""Who may change a run: origins, and the token wherever others reach the page."""

import pytest
from starlette.datastructures import Headers

from shoal.live.guard import Guard, Rules, same_origin


@pytest.mark.parametrize(
    ("headers", "same"),
    [
        ({"origin": "http://127.0.0.1:8765"}, True),
        ({}, True),  # no browser
        ({"origin": "http://127.0.0.1:8766"}, False),
        ({"origin": "http://evil.example"}, False),
        ({"origin": "null"}, False),
        ({"sec-fetch-site": "same-origin"}, False),
        ({"origin": "http://127.0.0.1:8765", "sec-fetch-site": "cross-site"}, False),
    ],
)
def test_origins(headers, same):
    assert same_origin(Headers({"host": "127.0.0.1:8765", **headers})) is same


@pytest.mark.parametrize(
    ("method", "query", "cookie", "status"),
    [
        ("GET", b"", "", 401),
        ("GET", b"", "no", 401),
        ("GET", b"token=no", "right", 401),
        ("POST", b"token=right", "", 401),  # from an address it is taken by pages alone
        ("DELETE", b"", "right", 405),
        ("GET", b"token=right", "", 0),
        ("GET", b"", "right", 0),
        ("POST", b"", "right", 0),
    ],
)
def test_a_page_for_others_goes_by_any_name_and_never_without_its_token(
    method, query, cookie, status
):
    rules = Rules("0.0.0.0", "right")
    headers = {"host": "gpu.example", "cookie": f"{rules.cookie}={cookie}"}
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": method, "query_string": query, "headers": raw, "path": "/"}
    wrong = Guard(nothing, rules).why_not(scope, headers)
    assert (wrong.status if wrong else 0) == status


async def nothing(scope, receive, send):
    """An application."""

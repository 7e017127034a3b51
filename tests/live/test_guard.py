"""Hosts, the token and origins."""

import pytest
from starlette.datastructures import Headers

from shoal.live.guard import Rules, is_loopback


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("127.0.0.1:8765", True),
        ("localhost:8765", True),
        ("LOCALHOST", True),
        ("[::1]:8765", True),
        ("evil.example:8765", False),
        ("127.0.0.1.evil.example", False),
        ("192.168.0.7:8765", False),
        ("", False),
        ("[", False),
    ],
)
def test_a_server_of_this_machine_alone_goes_by_no_other_name(host, ours):
    assert Rules().knows_host(host) is ours


def test_a_server_for_others_goes_by_addresses_and_its_own_name():
    rules = Rules(host="0.0.0.0")
    assert rules.knows_host("192.168.0.7:8765") and not rules.knows_host("evil.example")
    assert not rules.open and Rules().open


def test_loopback():
    assert is_loopback("127.0.0.3") and is_loopback("::1") and is_loopback("localhost")
    assert not is_loopback("0.0.0.0") and not is_loopback("::") and not is_loopback("example.org")


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
    assert Rules().same_origin(Headers({"host": "127.0.0.1:8765", **headers})) is same

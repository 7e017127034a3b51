"""Names of hosts and the token."""

import pytest

from shoal.access import Rules, is_local
from shoal.errors import ShoalError


@pytest.mark.parametrize(
    ("host", "ours"),
    [
        ("127.0.0.1:8765", True),
        ("127.0.0.3", True),
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


def test_a_server_for_others_goes_by_any_name_and_wants_a_token():
    assert Rules("0.0.0.0", "right").knows_host("gpu.example")
    with pytest.raises(ShoalError, match="give a token"):
        Rules("0.0.0.0")


def test_loopback():
    assert is_local("127.0.0.3") and is_local("::1") and is_local("[::1]") and is_local("localhost")
    assert not is_local("0.0.0.0") and not is_local("::") and not is_local("example.org")


@pytest.mark.parametrize(
    ("sent", "right"),
    [
        ("Bearer right", True),
        ("bearer  right", True),
        ("Bearer wrong", False),
        ("Bearer rïght", False),
        ("Basic right", False),
        ("right", False),
        ("", False),
    ],
)
def test_the_token(sent, right):
    assert Rules(token="right").has_bearer({"authorization": sent}) is right
    assert not Rules().has_bearer({"authorization": "Bearer "})  # no token is not the empty one

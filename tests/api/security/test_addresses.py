"""Addresses: what is loopback, what is one client, what is a proxy."""

from __future__ import annotations

import pytest

from api.security.addresses import client_of, is_loopback, is_loopback_host_header, is_network_address, read_proxies
from planner.errors import OptionError


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("::", False),
        ("10.0.0.5", False),
        ("example.com", False),
        ("localhost.example.com", False),
        ("testclient", False),
        ("", False),
    ],
)
def test_loopback(host: str, expected: bool) -> None:
    """Only addresses that no other machine can reach count, and no name but ``localhost``."""
    assert is_loopback(host) is expected


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("localhost:8080", True),
        ("127.0.0.1", True),
        ("[::1]:8080", True),
        ("replan.localhost", True),
        ("evil.example:8080", False),
        ("127.0.0.1.evil.example", False),
        ("", False),
        ("[::1", True),
        ("[fe80::1]", False),
    ],
)
def test_loopback_host_headers(header: str, expected: bool) -> None:
    """A foreign name that leads to loopback is still foreign."""
    assert is_loopback_host_header(header) is expected


def test_an_ipv6_network_is_one_client() -> None:
    """A host may use any address of its /64; IPv4 addresses and names stand for themselves."""
    assert client_of("2001:db8::1") == client_of("2001:db8::ffff:2") != client_of("2001:db8:0:1::1")
    assert client_of("10.0.0.5") == "10.0.0.5"
    assert not is_network_address("testclient")


def test_proxies_are_addresses_or_networks() -> None:
    """Anything else is refused by name."""
    assert read_proxies(" 10.0.0.1, 10.1.0.0/16,,::1 ") == ["10.0.0.1", "10.1.0.0/16", "::1"]
    with pytest.raises(OptionError, match=r"proxy\.example"):
        read_proxies("proxy.example")

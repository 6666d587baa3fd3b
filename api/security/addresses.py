"""What network addresses tell: whether a peer is on this machine, and who counts as one client."""

from __future__ import annotations

import ipaddress
from functools import lru_cache

from planner.errors import OptionError

_MOST_LETTERS = 100
"""An address with its scope is shorter. Clients choose what is looked up, so nothing longer is kept."""


def is_loopback(host: str) -> bool:
    """Whether a host to listen on, or a peer's address, is this machine's loopback; names other than ``localhost`` are not.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host.lower() == "localhost":
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def is_loopback_host_header(value: str) -> bool:
    """Whether a ``Host`` header names this machine's loopback, as a browser's does that was not led here by another name."""
    name = value.strip().lower()
    if name.startswith("["):
        return is_loopback(name[1:].partition("]")[0])
    name = name.partition(":")[0]
    return name.endswith(".localhost") or is_loopback(name)


def client_of(address: str) -> str:
    """Who counts as one client: an IPv4 address, or the /64 network that an IPv6 host may choose its addresses from."""
    return _client_of(address[:_MOST_LETTERS])


@lru_cache(maxsize=4096)
def _client_of(address: str) -> str:
    parsed = _address(address)
    if parsed is None or parsed.version == 4:
        return address
    return str(ipaddress.ip_network((parsed, 64), strict=False))


def is_network_address(address: str) -> bool:
    """Whether a peer's name is an IP address, as it is for every connection over a network."""
    return _address(address) is not None


def read_proxies(text: str) -> list[str]:
    """Addresses and networks of trusted proxies.

    Raises
    ------
    OptionError
        If a part is neither.
    """
    parts = [part.strip() for part in text.split(",") if part.strip()]
    for part in parts:
        try:
            ipaddress.ip_network(part)
        except ValueError as error:
            raise OptionError(f"trusted_proxies: {part[:80]!r} is no address or network: {error}") from error
    return parts


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    return None if len(text) > _MOST_LETTERS else _parsed(text)


@lru_cache(maxsize=4096)
def _parsed(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = getattr(address, "ipv4_mapped", None)
    return address if mapped is None else mapped

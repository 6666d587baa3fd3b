"""What both clients tell the HTTP library, and how they read it."""

from __future__ import annotations

import ssl
from typing import Any

import httpx2

from replan_client.answers import BodyReader
from replan_client.core import Core
from replan_client.retry import Attempt

CONNECT_S = 5.0
"""Seconds to a connection, unless a try has less."""


def options_of(core: Core) -> dict[str, Any]:
    """Options of a client of the library: nothing of the environment counts, so that the key goes where the URL says."""
    return {
        "headers": core.headers(),
        "trust_env": False,
        "follow_redirects": False,
        "verify": _trusted(core),
    }


def _trusted(core: Core) -> ssl.SSLContext | bool:
    if core.tls is None and core.url.startswith("http:"):
        # Nothing is trusted where nothing needs to be: reading the system's certificates takes 30 ms.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return True if core.tls is None else core.tls


def request_arguments(url: str, attempt: Attempt) -> dict[str, Any]:
    """Arguments of one request."""
    typed = {} if attempt.content is None else {"Content-Type": "application/json"}
    return {
        "method": attempt.method,
        "url": url + attempt.target,
        "headers": {**attempt.headers, **typed},
        "content": attempt.content,
        "timeout": httpx2.Timeout(attempt.timeout_s, connect=min(CONNECT_S, attempt.timeout_s)),
    }


def begin_body(response: httpx2.Response, most_bytes: int) -> BodyReader:
    """Reader of a response's body; raises as :class:`BodyReader` does."""
    headers = {name.lower(): value for name, value in response.headers.items()}
    return BodyReader(response.status_code, headers, most_bytes=most_bytes)


def reason_of(error: httpx2.TransportError, limit_s: float) -> str:
    """Why there is no whole answer."""
    if isinstance(error, httpx2.ConnectTimeout):
        return f"no connection within {min(CONNECT_S, limit_s):.3g} s"
    if isinstance(error, httpx2.TimeoutException):
        return f"it took longer than {limit_s:.3g} s"
    return str(error) or type(error).__name__

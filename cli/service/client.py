"""An HTTP client for RePlan's service, of the standard library alone.

``http.client`` rather than a library on top of it: a report comes from cron or a hook on a node under stress, where a small
import and no further dependency count; it follows no redirects, which would carry the key to another host; and it knows no
proxies, so a request goes where ``--server`` says or fails.

A request is tried again, with the same idempotency key, where the answer was lost or says to come again. Whatever the service
did the first time, it does not do twice.
"""

from __future__ import annotations

import http.client
import json
import random
import re
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from types import TracebackType
from typing import Any, NoReturn, Self
from urllib.parse import quote, urlsplit

from cli.errors import ServiceError

MAX_ANSWER_BYTES = 64 * 2**20
"""Longest answer read, 64 MiB."""

_ATTEMPT_TIMEOUT_S = 10.0
_COME_AGAIN = frozenset((429, 502, 503, 504))
_MAX_ATTEMPTS = 8
_FIRST_WAIT_S = 0.2
_MOST_WAIT_S = 30.0
_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")
_MOST_PLACES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a service is.

    Parameters
    ----------
    is_secure
        Whether it speaks TLS.
    host
        Name or address.
    port
        Port.
    prefix
        Path before ``/v1``; empty, or begins with a slash and ends with none.
    """

    is_secure: bool
    host: str
    port: int
    prefix: str

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.is_secure else 'http'}://{host}:{self.port}{self.prefix}"


def parse_address(url: str) -> Address:
    """Read a service's URL.

    Raises
    ------
    ValueError
        If it is no http or https URL, or holds a user, a query or a fragment.

    Examples
    --------
    >>> str(parse_address("https://replan.example/cluster1/"))
    'https://replan.example:443/cluster1'
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"[\x00-\x20\x7f-\uffff]", url):
        raise ValueError(f"{url!r} is no URL of a service; expected one such as http://127.0.0.1:8080")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError(f"{url!r} holds a user, a query or a fragment; expected host, port and path only")
    is_secure = parts.scheme == "https"
    port = parts.port if parts.port is not None else (443 if is_secure else 80)
    return Address(is_secure=is_secure, host=parts.hostname, port=port, prefix=parts.path.rstrip("/"))


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer below 400."""

    status: int
    body: bytes

    def document(self) -> dict[str, Any]:
        """The JSON object in it.

        Raises
        ------
        ServiceError
            If it holds anything else.
        """
        try:
            document = json.loads(self.body)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            _refuse_answer(self.status, self.body)
        return document


class _LostError(Exception):
    """There was no whole answer."""


@dataclass(slots=True)
class ServiceClient:
    """Sends requests to one service, over one connection for as long as that holds.

    Parameters
    ----------
    address
        The service.
    key
        API key; ``None`` for none.
    timeout_s
        Seconds that a request may take with all its tries, above 0.
    sleep, clock
        Waiting and time, for tests.
    """

    address: Address
    key: str | None = field(default=None, repr=False)
    timeout_s: float = 30.0
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic
    _connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._disconnect()

    def get(self, *path: str, **query: str | int | None) -> Answer:
        """Fetch what is at a path; see :meth:`send`."""
        given = "&".join(f"{name}={quote(str(value), safe='')}" for name, value in query.items() if value is not None)
        return self.send("GET", *path, query=given)

    def send(
        self, method: str, *path: str, body: Any = None, idempotency_key: str | None = None, query: str = ""
    ) -> Answer:
        """Send a request until there is an answer.

        Parameters
        ----------
        method
            GET, PUT or DELETE, or POST with an idempotency key: what may come twice.
        path
            Parts of the path after ``/v1``; each is quoted.
        body
            Plain values, sent as JSON; ``None`` for no body.
        idempotency_key
            The same for every try.
        query
            What follows the question mark.

        Raises
        ------
        ServiceError
            If the service does not answer in time, answers with a problem, or gives what is no answer of RePlan.
        """
        assert method != "POST" or idempotency_key is not None
        target = "/".join([f"{self.address.prefix}/v1", *(quote(part, safe="") for part in path)])
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        headers = self._headers(content, idempotency_key)
        until = self.clock() + self.timeout_s
        for attempt in range(1, _MAX_ATTEMPTS + 1):
            reason, wait_s = "", 0.0
            try:
                answer, wait_s = self._try(method, f"{target}?{query}" if query else target, content, headers, until)
            except _LostError as error:
                answer, reason = None, str(error)
            if answer is not None and answer.status not in _COME_AGAIN:
                if attempt > 1 and method == "DELETE" and answer.status == HTTPStatus.NOT_FOUND:
                    return Answer(HTTPStatus.NO_CONTENT, b"")  # the first try did it, and its answer was lost
                if not 200 <= answer.status < 300:
                    _raise_problem(answer.status, answer.body)
                return answer
            pause = max(min(wait_s, _MOST_WAIT_S), _FIRST_WAIT_S * 2 ** (attempt - 1) * random.uniform(0.5, 1.5))
            if attempt == _MAX_ATTEMPTS or self.clock() + pause >= until:
                break
            self.sleep(pause)
        if answer is not None:
            _raise_problem(answer.status, answer.body)
        tries = f"tried {attempt} time{'' if attempt == 1 else 's'} within {self.timeout_s:g} s"
        raise ServiceError(
            f"no answer from {self.address}: {reason} ({tries})",
            code="service_unreachable",
            hint="see that the service runs and --server is right; nothing is lost by trying again",
        )

    def _headers(self, content: bytes | None, idempotency_key: str | None) -> dict[str, str]:
        headers = {"Accept": "application/json, application/problem+json"}
        if content is not None:
            headers["Content-Type"] = "application/json"
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        if self.key is not None:
            headers["Authorization"] = f"Bearer {self.key}"
        return headers

    def _try(
        self, method: str, target: str, content: bytes | None, headers: Mapping[str, str], until: float
    ) -> tuple[Answer, float]:
        """One try: the answer, and the seconds that it says to wait before the next."""
        timeout_s = min(_ATTEMPT_TIMEOUT_S, max(until - self.clock(), 0.1))
        try:
            connection = self._connect(timeout_s)
            connection.request(method, target, body=content, headers=dict(headers))
            response = connection.getresponse()
            answer = Answer(response.status, self._read(response, min(until, self.clock() + timeout_s)))
        except (OSError, http.client.HTTPException, _LostError) as error:
            self._disconnect()
            raise _LostError(_reason(error)) from error
        if response.will_close:
            self._disconnect()
        retry_after = response.headers.get("Retry-After", "")
        return answer, float(retry_after) if retry_after.isdecimal() and len(retry_after) < 9 else 0.0

    def _connect(self, timeout_s: float) -> http.client.HTTPConnection:
        connection = self._connection
        if connection is None:
            host, port = self.address.host, self.address.port
            if self.address.is_secure:
                context = ssl.create_default_context()
                connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)
            else:
                connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
            self._connection = connection
        elif connection.sock is not None:
            connection.sock.settimeout(timeout_s)
        return connection

    def _read(self, response: http.client.HTTPResponse, until: float) -> bytes:
        """A whole body; one that comes in drops ends with the time-out too."""
        body = bytearray()
        while chunk := response.read1(2**16):
            body += chunk
            if len(body) > MAX_ANSWER_BYTES:
                self._disconnect()
                raise ServiceError(
                    f"the answer has more than {MAX_ANSWER_BYTES} bytes", code="service_answer_invalid", status=None
                )
            if self.clock() >= until:
                raise _LostError("the answer did not end in time")
        if response.length:
            raise _LostError(f"the answer ended {response.length} bytes early")
        return bytes(body)

    def _disconnect(self) -> None:
        if self._connection is not None:
            with suppress(OSError):
                self._connection.close()
            self._connection = None


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "it took too long"
    if isinstance(error, OSError):
        return error.strerror or str(error) or type(error).__name__
    return str(error) or type(error).__name__


def _raise_problem(status: int, body: bytes) -> NoReturn:
    """Raise what a problem document says."""
    try:
        document = json.loads(body)
        code, detail = document["code"], document["detail"]
        places = document.get("errors", [])[:_MOST_PLACES]
        lines = [detail, *(f"{place['pointer']}: {place['detail']}" for place in places)]
        if "instance" in document:
            lines.append(f"the service's log tells more under {document['instance']}")
        if _CODE.fullmatch(code) is None or not all(isinstance(line, str) for line in lines):
            raise TypeError
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        _refuse_answer(status, body)
    unique = list(dict.fromkeys(_printable(line) for line in lines))
    raise ServiceError("\n".join(unique), code=code, status=status, hint=_hint(code))


def _hint(code: str) -> str | None:
    return {
        "key_missing": "give the key's file with --key-file",
        "scope_too_small": "use a key of a larger scope",
        "epoch_conflict": "look at the current epoch with replan jobs show, and report again",
    }.get(code)


def _refuse_answer(status: int, body: bytes) -> NoReturn:
    shown = _printable(body[:80].decode("utf-8", "replace"))
    raise ServiceError(
        f"status {status} came with what is no answer of RePlan: {shown!r}",
        code="service_answer_invalid",
        status=status if status >= 400 else None,
        hint="see that --server names RePlan's service and not something before it",
    )


def _printable(text: str) -> str:
    """Text of the service without what would steer a terminal."""
    return "".join(letter if letter.isprintable() or letter == "\n" else "�" for letter in text)

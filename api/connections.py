"""The HTTP/1.1 protocol of the web server, with limits on connections, headers and time that it does not have itself.

What no route can tell is told here, as a problem document too: malformed requests, too long headers, too many connections.
"""

from __future__ import annotations

import asyncio
import collections
import http
import json
from dataclasses import dataclass, field
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """What connections may take, and how many of them are open.

    Parameters
    ----------
    max_connections, max_connections_per_address
        Most that may be open.
    max_header_bytes
        Most bytes of a request's line, headers and trailers.
    header_timeout_s
        Seconds in which the headers of a request must arrive.
    write_timeout_s
        Seconds a client may leave an answer unread.
    """

    max_connections: int
    max_connections_per_address: int
    max_header_bytes: int
    header_timeout_s: float
    write_timeout_s: float
    open_by_address: collections.Counter[str] = field(default_factory=collections.Counter)


def limited_protocol(limits: ConnectionLimits) -> type[HttpToolsProtocol]:
    """Protocol class of one server; it counts the connections of that server."""
    return type("LimitedProtocol", (_LimitedProtocol,), {"limits": limits})


class _LimitedProtocol(HttpToolsProtocol):
    limits: ConnectionLimits

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._address: str | None = None
        self._is_refused = False
        self._reads_headers = False
        self._header_bytes = 0  # names and values that are read
        self._pending_bytes = (
            0  # what came since the headers began: a header's text is kept by the parser until it ends
        )
        self._header_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        address = self.client[0] if self.client else ""
        self._address = address
        self.limits.open_by_address[address] += 1
        if len(self.connections) > self.limits.max_connections:
            self._refuse(503, "overloaded", "This server has as many connections open as it may.")
        elif self.limits.open_by_address[address] > self.limits.max_connections_per_address:
            self._refuse(503, "overloaded", "This address has as many connections open as it may.")
        else:
            self._start_header_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_header_timer()
        self._stop_write_timer()
        if self._address is not None:
            self.limits.open_by_address[self._address] -= 1
            if not self.limits.open_by_address[self._address]:
                del self.limits.open_by_address[self._address]
            self._address = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self._reads_headers:
            self._pending_bytes += len(data)
            if self._pending_bytes > self.limits.max_header_bytes:
                self._refuse_headers()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._reads_headers = True
        self._header_bytes = self._pending_bytes = 0
        self._start_header_timer()

    def on_url(self, url: bytes) -> None:
        self._header_bytes += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value)
        if self._header_bytes <= self.limits.max_header_bytes:
            super().on_header(name, value)
        elif not self._reads_headers:
            self.transport.abort()  # trailers, while the request is being answered

    def on_headers_complete(self) -> None:
        self._reads_headers = False
        self._stop_header_timer()
        if self._header_bytes > self.limits.max_header_bytes:
            self._refuse_headers()
        if not self._is_refused:
            super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if not self._is_refused:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if not self._is_refused:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        # A body that is still coming after the answer would be read for as long as it comes.
        if not self.pipeline and self.cycle.more_body:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the parser's words are for the log
        self._refuse(400, "request_malformed", "This is not an HTTP request.")

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_write_timer()

    def resume_writing(self) -> None:
        self._stop_write_timer()
        super().resume_writing()

    def _start_header_timer(self) -> None:
        if self._header_timer is None:
            self._header_timer = self.loop.call_later(self.limits.header_timeout_s, self._on_slow_headers)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _on_slow_headers(self) -> None:
        self._header_timer = None
        if self.cycle is None or self.cycle.response_complete:
            self._refuse(408, "request_timeout", f"No headers arrived within {self.limits.header_timeout_s:g} s.")
        else:
            self.transport.abort()  # pipelined behind a request that is still being answered

    def _start_write_timer(self) -> None:
        self._stop_write_timer()
        self._write_timer = self.loop.call_later(self.limits.write_timeout_s, self._on_slow_reader)

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _on_slow_reader(self) -> None:
        self._write_timer = None
        if self.flow.write_paused or self.transport.get_write_buffer_size():
            self.transport.abort()

    def _refuse_headers(self) -> None:
        self._refuse(431, "headers_too_large", f"The headers have more than {self.limits.max_header_bytes} bytes.")

    def _refuse(self, status: int, code: str, detail: str) -> None:
        """Answer without a request, and close; a client that does not read the answer is cut off."""
        if self._is_refused:
            return
        self._is_refused = True
        phrase = http.HTTPStatus(status).phrase
        document = {
            "type": f"urn:replan:problem:{code}",
            "title": phrase,
            "status": status,
            "code": code,
            "detail": detail,
        }
        body = json.dumps(document).encode("ascii")
        retry = b"retry-after: 2\r\n" if status == 503 else b""
        head = b"HTTP/1.1 %d %s\r\ncontent-type: application/problem+json\r\ncontent-length: %d\r\n" % (
            status,
            phrase.encode("ascii"),
            len(body),
        )
        self._reads_headers = False
        self._stop_header_timer()
        self.transport.write(head + retry + b"connection: close\r\n\r\n" + body)
        self.transport.close()
        self._start_write_timer()

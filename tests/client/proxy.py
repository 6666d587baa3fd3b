"""A small real proxy between a client and a service, which changes, refuses or delays answers."""

from __future__ import annotations

import ssl
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2

_NOT_PASSED = {"host", "connection", "content-length", "transfer-encoding"}


@dataclass(frozen=True)
class Passing:
    """A request on its way, or the answer to it; names of headers are in lower case, the body is as it was sent."""

    method: str
    target: str
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass
class Proxy:
    """Where it listens, what passed, and what is done to it.

    ``before`` may answer a request in the service's place, ``after`` change the service's answer. The service's digests go no
    further unless ``passes_digests``: what a client sees without them is to be tried too.
    """

    url: str = ""
    before: Callable[[Passing], Passing | None] = lambda _: None
    after: Callable[[Passing], Passing] = lambda passing: passing
    requests: list[Passing] = field(default_factory=list)
    passes_digests: bool = False


@contextmanager
def proxied(service: str) -> Iterator[Proxy]:
    """Run a proxy of a service."""
    proxy = Proxy()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._pass()

        def do_POST(self) -> None:
            self._pass()

        def do_PUT(self) -> None:
            self._pass()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def _pass(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Passing(self.command, self.path, headers=headers, body=body)
            proxy.requests.append(request)
            answer = proxy.before(request) or proxy.after(self._forward(request))
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            if answer.status not in (204, 304):
                self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def _forward(self, request: Passing) -> Passing:
            passed = {name: value for name, value in request.headers.items() if name not in _NOT_PASSED}
            target = service + request.target
            with forwarder.stream(request.method, target, headers=passed, content=request.body) as got:
                dropped = _NOT_PASSED if proxy.passes_digests else {*_NOT_PASSED, "repr-digest"}
                headers = {name.lower(): value for name, value in got.headers.items() if name.lower() not in dropped}
                return Passing(request.method, request.target, got.status_code, headers, b"".join(got.iter_raw()))

    class Listener(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            """Say nothing of clients that leave, and of long polls that the proxy's end cuts off."""
            if not isinstance(sys.exc_info()[1], OSError | httpx2.HTTPError | RuntimeError):
                super().handle_error(request, client_address)

    with (
        httpx2.Client(timeout=60, trust_env=False, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)) as forwarder,
        Listener(("127.0.0.1", 0), Handler) as server,
    ):
        proxy.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join(10)

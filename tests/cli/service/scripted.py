"""A real HTTP server that answers from a script: for answers that a healthy service does not give."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Script:
    """Where the server is, and what it was sent."""

    url: str
    requests: list[str] = field(default_factory=list)


def answer(status: int, body: str, *headers: str, length: int | None = None) -> bytes:
    """An HTTP answer as bytes."""
    content = body.encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(content) if length is None else length}", *headers, "", ""]
    return "\r\n".join(lines).encode() + content


@contextmanager
def scripted(answers: Sequence[bytes]) -> Iterator[Script]:
    """Serve one connection for each answer: read a request, send the answer, close."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        script = Script(f"http://127.0.0.1:{listener.getsockname()[1]}")

        def serve() -> None:
            for content in answers:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    script.requests.append(_read_request(connection))
                    connection.sendall(content)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield script
        finally:
            # Closing a listener does not wake who waits in it; a shutdown does.
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(10)


def _read_request(connection: socket.socket) -> str:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = next((int(line[15:]) for line in head.lower().splitlines() if line.startswith(b"content-length:")), 0)
    while len(body) < length:
        body += connection.recv(65536)
    return (head + b"\r\n\r\n" + body).decode()

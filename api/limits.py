"""What is checked of a request body before anything is made of it: media type, size, depth, strict JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anyio import CapacityLimiter, to_thread
from fastapi import Request

from api.errors import MediaTypeError, RequestError
from api.models import F, read_form
from planner.errors import DocumentLimitError
from planner.formats.documents import parse_document

MOST_OF: Mapping[str, int] = {",": 500_000, ":": 300_000, "[{": 300_000}
"""How often these letters may stand in a body, which bounds the values it is made of; a table of 131,072 GPUs fits."""
_TINY_BYTES = 256
_LARGE_BYTES = 64 * 1024


async def read_body(request: Request, *, max_bytes: int) -> bytes:
    """Read a JSON request body, never more than ``max_bytes`` and one chunk of it.

    Raises
    ------
    MediaTypeError
        If the body is not declared as plain ``application/json``.
    DocumentLimitError
        If it is larger; told from ``Content-Length`` before reading, else while reading.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise MediaTypeError(f"the body's Content-Type is {media_type[:80]!r}; expected application/json")
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise MediaTypeError("the body has a Content-Encoding; expected it as it is")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise DocumentLimitError(f"the body has {declared} bytes; expected at most {max_bytes}")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise DocumentLimitError(f"the body has more than {max_bytes} bytes")
    return bytes(body)


class BodyReader:
    """Reads the JSON bodies of requests.

    Parameters
    ----------
    max_bytes
        Largest body; forms that need less allow less.
    """

    def __init__(self, *, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        # Large bodies are read by few threads of their own, so that they neither fill the memory together nor keep small
        # ones from being read.
        self._few = CapacityLimiter(2)

    async def read(self, request: Request, form: type[F]) -> F:
        """Read a body of this form; raises as :func:`read_body`, :func:`parse_body` and :func:`api.models.read_form` do."""
        most = self._max_bytes if form.most_bytes is None else min(form.most_bytes, self._max_bytes)
        body = await read_body(request, max_bytes=most)
        if len(body) <= _TINY_BYTES:
            # Read in less time than a thread takes to begin: thousands of workers acknowledge at once.
            return read_form(form, parse_body(body, max_bytes=most))
        return await to_thread.run_sync(
            lambda: read_form(form, parse_body(body, max_bytes=most)),
            limiter=self._few if len(body) > _LARGE_BYTES else None,
        )


def parse_body(body: bytes, *, max_bytes: int) -> Any:
    """Read strict JSON: UTF-8, bounded depth, no NaN or infinity, no key twice in one object.

    Raises
    ------
    DocumentLimitError
        If it is larger, nested deeper or of more parts than a document may be.
    RequestError
        If it is not such JSON.
    """
    # How many values there can be is known before any is made.
    for letters, most in MOST_OF.items():
        found = sum(body.count(letter.encode("ascii")) for letter in letters)
        if found > most:
            raise DocumentLimitError(f"the body has {found} times {' or '.join(letters)}; expected at most {most}")
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(f"the body is not UTF-8: byte {error.start} is {body[error.start]:#04x}") from error
    return parse_document(text, format="json", max_bytes=max_bytes, error=RequestError)

"""What is checked of a request body before anything is made of it: media type, size, depth, strict JSON."""

from __future__ import annotations

from typing import Any

from fastapi import Request

from api.errors import MediaTypeError, RequestError
from planner.errors import DocumentLimitError
from planner.formats.documents import parse_document


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


def parse_body(body: bytes, *, max_bytes: int) -> Any:
    """Read strict JSON: UTF-8, bounded depth, no NaN or infinity, no key twice in one object.

    Raises
    ------
    DocumentLimitError
        If it is larger or nested deeper than a document may be.
    RequestError
        If it is not such JSON.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(f"the body is not UTF-8: byte {error.start} is {body[error.start]:#04x}") from error
    return parse_document(text, format="json", max_bytes=max_bytes, error=RequestError)

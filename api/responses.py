"""What the routes share: answers of stored bytes, and their entries in the OpenAPI document."""

from __future__ import annotations

import base64
import gzip
import hashlib
from collections.abc import Mapping
from typing import Any

from fastapi import Request, Response
from pydantic import BaseModel

from api.models import ProblemDetails
from api.problems import MEDIA_TYPE

JSON = "application/json"
IMMUTABLE = "private, max-age=31536000, immutable"
NOT_MODIFIED = {"description": "The client has it already (If-None-Match)."}
PROBLEM_REF = {"$ref": f"#/components/schemas/{ProblemDetails.__name__}"}
PROBLEMS: dict[int, dict[str, Any]] = {
    status: {"description": description, "content": {MEDIA_TYPE: {"schema": PROBLEM_REF}}}
    for status, description in {
        401: "The request carries no key that the service knows.",
        403: "The key does not allow this.",
        404: "What the path names is not there.",
        408: "The body did not arrive in time.",
        409: "The request is sound, but contradicts what is known or cannot be answered; the code says which.",
        413: "The body is larger or nested deeper than allowed.",
        415: "The body is not application/json.",
        422: "The path, the query, a header or the body is not what it should be.",
        429: "Too many requests; see Retry-After.",
        500: "A fault of the service.",
        503: "The queue is full, the wait in it was too long, or the store does not answer; see Retry-After.",
        504: "The solver ran far past its deadline and was stopped.",
    }.items()
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI entries of the problem answers with these statuses."""
    return {status: PROBLEMS[status] for status in statuses}


def json_of(form: type[BaseModel]) -> dict[str, Any]:
    """OpenAPI content of a JSON body of this form."""
    return {JSON: {"schema": {"$ref": f"#/components/schemas/{form.__name__}"}}}


def body_of(form: type[BaseModel]) -> dict[str, Any]:
    """OpenAPI entry of an operation whose body is read by hand: with limits on size and depth."""
    return {"requestBody": {"required": True, "content": json_of(form)}}


def document_answers(form: type[BaseModel], description: str, *statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI entries of a route that gives stored bytes of this form, and the problems it has beside the usual ones."""
    return {
        200: {"description": description, "content": json_of(form)},
        304: NOT_MODIFIED,
        **problems(*sorted({404, 422, 500, 503, *statuses})),
    }


def stored(request: Request, content: bytes, sha256: str) -> Response:
    """Stored bytes as they are, or 304 where the client has them."""
    etag = f'"{sha256}"'
    headers = {"ETag": etag, "Cache-Control": IMMUTABLE}
    if matches(request.headers.getlist("if-none-match"), etag):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=JSON, headers=headers)


def packed(
    request: Request,
    content: bytes,
    etag: str,
    *,
    media_type: str = JSON,
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Stored gzip bytes, unpacked where the client does not take them; the tag is weak since it stands for both.

    A digest of the bytes as they are sent (RFC 9530) goes along: what changes a program on its way must not be run.

    Parameters
    ----------
    request
        Who asks.
    content
        The bytes in gzip.
    etag
        Their tag, quoted.
    media_type
        Of the bytes once they are unpacked.
    headers
        Further headers; ``None`` for what may be kept for ever.
    """
    sent = {
        "ETag": f"W/{etag}",
        "Vary": "Accept-Encoding",
        **({"Cache-Control": IMMUTABLE} if headers is None else headers),
    }
    if matches(request.headers.getlist("if-none-match"), etag):
        return Response(status_code=304, headers=sent)
    if _takes_gzip(request.headers.get("accept-encoding", "")):
        sent["Content-Encoding"] = "gzip"
    else:
        content = gzip.decompress(content)
    sent["Repr-Digest"] = f"sha-256=:{base64.b64encode(hashlib.sha256(content).digest()).decode('ascii')}:"
    return Response(content, media_type=media_type, headers=sent)


def _takes_gzip(accepted: str) -> bool:
    """Whether an Accept-Encoding header allows gzip."""
    for part in accepted.split(","):
        coding, _, quality = part.partition(";")
        if coding.strip().lower() in ("gzip", "x-gzip"):
            return quality.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def matches(if_none_match: list[str], etag: str) -> bool:
    """Whether an If-None-Match header holds the tag; comparison is weak, as RFC 9110 asks."""
    bare = etag.removeprefix("W/")
    tags = [tag.strip().removeprefix("W/") for line in if_none_match for tag in line.split(",")]
    return bare in tags or "*" in tags

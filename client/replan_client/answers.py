"""Answers: bounded in size before and after they are unpacked, and compared with their digest where they carry one."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from replan_client.errors import AnswerError, AnswerTooLargeError, DigestMismatchError

_GZIP = 16 + zlib.MAX_WBITS
_SHA256 = re.compile(r"(?:^|,)\s*sha-256=:([A-Za-z0-9+/=]*):")


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer.

    Parameters
    ----------
    status
        HTTP status.
    headers
        Headers by their names in lower case.
    body
        The body, unpacked.
    """

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class BodyReader:
    """Takes an answer's body piece by piece.

    Parameters
    ----------
    status, headers
        Of the answer; names of headers in lower case.
    most_bytes
        Most bytes of the body, as sent and unpacked.

    Raises
    ------
    AnswerTooLargeError
        If the answer says that it has more.
    """

    def __init__(self, status: int, headers: Mapping[str, str], *, most_bytes: int) -> None:
        self._status = status
        self._headers = headers
        self._most_bytes = most_bytes
        self._content = bytearray()
        length = headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 18 or int(length) > most_bytes):
            self._refuse_size(f"says that it has {length[:24]} bytes")

    def feed(self, piece: bytes) -> None:
        """Take a piece as it was sent; raises :class:`AnswerTooLargeError` where it is one too many."""
        self._content += piece
        if len(self._content) > self._most_bytes:
            self._refuse_size("goes on")

    def finish(self) -> Answer:
        """The whole answer.

        Raises
        ------
        DigestMismatchError
            If the bytes do not match the digest that came with them (RFC 9530).
        AnswerTooLargeError
            If they unpack to too many.
        AnswerError
            If they cannot be unpacked.
        """
        content = bytes(self._content)
        _check_digest(self._headers, content)
        coding = self._headers.get("content-encoding", "identity").strip().lower()
        if coding in ("gzip", "x-gzip") and content:
            content = self._unpack(content)
        elif coding not in ("identity", "", "gzip", "x-gzip"):
            raise AnswerError(f"the answer comes in the coding {coding[:40]!r}; expected gzip or none")
        return Answer(self._status, self._headers, content)

    def _unpack(self, content: bytes) -> bytes:
        unpacker = zlib.decompressobj(_GZIP)
        try:
            unpacked = unpacker.decompress(content, self._most_bytes + 1)
        except zlib.error as error:
            raise AnswerError(
                f"the answer is no sound gzip: {error}", hint="it was damaged on its way: ask again"
            ) from error
        if len(unpacked) > self._most_bytes:
            self._refuse_size("unpacks to more")
        if not unpacker.eof or unpacker.unused_data:
            raise AnswerError("the answer's gzip is cut short, or something follows it", hint="ask again")
        return unpacked

    def _refuse_size(self, how: str) -> None:
        raise AnswerTooLargeError(
            f"the answer {how}, beyond the limit of {self._most_bytes} bytes",
            hint="see that the URL names RePlan's service; max_answer_bytes of the client is the limit",
        )


def _check_digest(headers: Mapping[str, str], content: bytes) -> None:
    """Compare bytes as they were sent with the sha-256 of a digest header; without one nothing is known."""
    for name in ("content-digest", "repr-digest"):
        match = _SHA256.search(headers.get(name, ""))
        if match is None:
            continue
        try:
            expected = base64.b64decode(match[1], validate=True)
        except binascii.Error:
            expected = b""
        found = hashlib.sha256(content).digest()
        if found != expected:
            raise DigestMismatchError(
                f"the answer has the sha-256 {found.hex()}; its {name} says {expected.hex() or match[1]!r}",
                hint="it was changed or damaged on its way: ask again, and look at what stands between",
            )

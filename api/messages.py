"""Messages between the server and its solver processes: a list of byte strings, lengths first.

Plain bytes on purpose: nothing that arrives is ever unpickled.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import BinaryIO, TypeAlias

Handler: TypeAlias = Callable[[list[bytes]], list[bytes]]
"""What answers a request in a solver process: arguments in, parts of the answer out."""

MAX_PARTS = 1_000_000
MAX_PART_BYTES = 2**31

_COUNT = struct.Struct(">I")


class MessageEndError(Exception):
    """The other side has closed the channel, or what comes is no message."""


def encode(parts: Sequence[bytes]) -> bytes:
    r"""Bytes of a message: the number of parts, each part's length, then the parts.

    Examples
    --------
    >>> encode([b"ab"])
    b'\x00\x00\x00\x01\x00\x00\x00\x02ab'
    """
    lengths = [_COUNT.pack(len(part)) for part in parts]
    return b"".join([_COUNT.pack(len(parts)), *lengths, *parts])


def decode_count(data: bytes) -> int:
    """Number of parts, from the first 4 bytes of a message.

    Raises
    ------
    MessageEndError
        If it is out of range.
    """
    (count,) = _COUNT.unpack(data)
    if count > MAX_PARTS:
        raise MessageEndError(f"a message of {count} parts")
    return int(count)


def decode_lengths(data: bytes) -> list[int]:
    """Lengths of the parts, from the 4 bytes of each.

    Raises
    ------
    MessageEndError
        If one is out of range.
    """
    lengths = [length for (length,) in _COUNT.iter_unpack(data)]
    if any(length > MAX_PART_BYTES for length in lengths):
        raise MessageEndError(f"a message with a part of {max(lengths)} bytes")
    return lengths


def split(data: bytes, lengths: Sequence[int]) -> list[bytes]:
    """Cut the rest of a message into its parts."""
    parts, start = [], 0
    for length in lengths:
        parts.append(data[start : start + length])
        start += length
    return parts


def read_message(stream: BinaryIO) -> list[bytes]:
    """Read one message from a blocking stream.

    Raises
    ------
    MessageEndError
        If the stream ends first.
    """
    lengths = decode_lengths(_read(stream, _COUNT.size * decode_count(_read(stream, _COUNT.size))))
    return split(_read(stream, sum(lengths)), lengths)


def _read(stream: BinaryIO, size: int) -> bytes:
    data = stream.read(size)
    if len(data) != size:
        raise MessageEndError("the channel was closed")
    return data

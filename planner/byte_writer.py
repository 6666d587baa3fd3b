"""Writing text into byte arrays from compiled loops: a large plan is some 100,000 operations as text.

Each function puts something at a position of a uint8 array that is long enough, and returns the position after it.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from numba import njit

Bytes: TypeAlias = npt.NDArray[np.uint8]


def to_array(data: bytes) -> Bytes:
    """Bytes as an array that compiled code can read."""
    return np.frombuffer(data, dtype=np.uint8)


def join_arrays(parts: list[bytes]) -> tuple[Bytes, npt.NDArray[np.int64]]:
    """Parts one after another, and where each begins; the last entry is where they end."""
    ends = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    return to_array(b"".join(parts)), ends


def num_digits(column: npt.NDArray[np.int64]) -> int:
    """Most characters that one number of a column takes, a sign included."""
    return max(len(str(int(column.max(initial=0)))), len(str(int(column.min(initial=0)))))


@njit(cache=True)
def put_number(buffer: Bytes, at: int, number: int) -> int:
    """Put a number in decimal."""
    if number < 0:
        buffer[at] = 45
        at += 1
        number = -number
    length = 1
    rest = number // 10
    while rest > 0:
        length += 1
        rest //= 10
    for position in range(at + length - 1, at - 1, -1):
        buffer[position] = 48 + number % 10
        number //= 10
    return at + length


@njit(cache=True)
def put_bytes(buffer: Bytes, at: int, source: Bytes, begin: int, end: int) -> int:
    """Put ``source[begin:end]``."""
    for position in range(begin, end):
        buffer[at] = source[position]
        at += 1
    return at


@njit(cache=True)
def put_operation(buffer: Bytes, at: int, stage: int, letter: int, pipeline: int, microbatch: int) -> int:
    """Put an operation's text form, ``2F1.3``; ``letter`` is its kind's character."""
    at = put_number(buffer, at, stage)
    buffer[at] = letter
    at = put_number(buffer, at + 1, pipeline)
    buffer[at] = 46
    end: int = put_number(buffer, at + 1, microbatch)
    return end

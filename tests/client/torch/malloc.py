"""Bytes that the C library's allocator has given out, as something that counts apart from PyTorch."""

from __future__ import annotations

import ctypes

import pytest


class _Mallinfo2(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in [
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        ]
    )


def malloc_bytes() -> int:
    """Bytes in use, of large blocks and small ones; skips the test where the C library does not tell."""
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        pytest.skip("the C library has no mallinfo2")
    mallinfo2.restype = _Mallinfo2
    info = mallinfo2()
    return int(info.hblkhd + info.uordblks)

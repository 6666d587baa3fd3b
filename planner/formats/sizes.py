"""Sizes as people write them: 4096, 1.5e9 or "1.5 GiB"."""

from __future__ import annotations

import re
from fractions import Fraction

_UNITS = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_SIZE = re.compile(rf"([0-9]{{1,18}}(?:\.[0-9]{{1,18}})?) ?({'|'.join(_UNITS)})")


def parse_size(value: object) -> object:
    """Bytes of a size: a text with a unit, or a number without a fraction; anything else is handed back as it came.

    A fraction of a byte is rounded half to even. Meant to run before a validator that wants an integer.

    Raises
    ------
    ValueError
        If a text is no size.

    Examples
    --------
    >>> parse_size("1.5 GiB")
    1610612736
    """
    if isinstance(value, str):
        match = _SIZE.fullmatch(value)
        if match is None:
            raise ValueError(f"expected bytes, or a text such as 1.5 GiB with a unit of {', '.join(_UNITS)}")
        return round(Fraction(match[1]) * _UNITS[match[2]])
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value

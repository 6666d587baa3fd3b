"""Memory of this process, as Linux counts it; ``None`` where it does not."""

from __future__ import annotations

import re
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)
_NOW = re.compile(r"^VmRSS:\s+(\d+) kB$", re.MULTILINE)


def resident_bytes() -> int | None:
    """Resident memory now."""
    return _read(_NOW)


def peak_bytes() -> int | None:
    """Most resident memory since :func:`forget_peak`, or since the process began where that is not granted."""
    return _read(_PEAK)


def forget_peak() -> None:
    """Let the peak begin again from what is resident now, where the kernel grants it."""
    try:
        _CLEAR.write_text("5", encoding="ascii")
    except OSError:
        return


def _read(pattern: re.Pattern[str]) -> int | None:
    if not _STATUS.exists():
        return None
    match = pattern.search(_STATUS.read_text(encoding="ascii", errors="replace"))
    return None if match is None else int(match[1]) * 1024

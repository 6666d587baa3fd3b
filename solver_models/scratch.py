"""Folders that solver processes work in, and those that nobody lives to remove.

Whoever makes a folder holds a lock on a file in it and removes it at the end; its child does where the maker is killed. Only
where all of them are killed at once, as when memory runs out or a container is stopped, a folder stays. The kernel gives its lock
back then, so the next that makes one can tell, also across containers that share the folder for temporary files.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from pathlib import Path

_PREFIX = "replan-solve-"
_LOCK = "lock"

_LEAST_AGE_S = 60.0
"""A folder may be this old before its maker has locked it."""

_MOST_AGE_S = 2 * 86_400.0
"""No search lasts as long, so a folder without a lock file is nobody's any more."""


class ScratchFolder:
    """A folder of this process's own, until :meth:`remove`.

    Raises
    ------
    OSError
        If it cannot be made.
    """

    def __init__(self) -> None:
        sweep(Path(tempfile.gettempdir()))
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def remove(self) -> None:
        """Remove the folder with all that is in it; what cannot be removed is left to the next sweep."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)


def sweep(parent: Path) -> None:
    """Remove this user's folders in ``parent`` whose makers are gone; whatever goes wrong with one leaves it there."""
    try:
        found = [entry.path for entry in os.scandir(parent) if entry.name.startswith(_PREFIX)]
    except OSError:
        return
    for path in found:
        if _is_abandoned(path):
            shutil.rmtree(path, ignore_errors=True)


def _is_abandoned(path: str) -> bool:
    try:
        status = os.lstat(path)
        age_s = time.time() - status.st_mtime
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or age_s < _LEAST_AGE_S:
            return False
        try:
            lock = os.open(f"{path}/{_LOCK}", os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return age_s > _MOST_AGE_S
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(lock)
    except OSError:
        return False
    return True

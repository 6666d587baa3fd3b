"""Files that appear whole or not at all: written under another name beside their own, then renamed.

What is no regular file (a device, a pipe, whatever ``/dev/stdout`` stands for) is written to as it is and never replaced;
a symbolic link stays, and what it points to is written.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from planner.errors import InputError

_KERNEL_FOLDERS = ("/dev/", "/proc/")
"""What these hold stands for something else, also where that is a regular file: ``/dev/stdout`` after ``> file``."""


@contextmanager
def whole_file(path: Path, *, durable: bool = True) -> Iterator[BinaryIO]:
    """A file to write that takes its name, or its old content's place, once the block has ended without an error.

    Parameters
    ----------
    path
        Where. A file that is there keeps its permissions; a new one gets those that the process's umask leaves.
    durable
        Whether to wait until the data is on the disk.

    Raises
    ------
    InputError
        If the file cannot be written; then what was there before is there still.
    """
    try:
        mode = _mode(path)
        if mode is not None and (not stat.S_ISREG(mode) or os.path.abspath(path).startswith(_KERNEL_FOLDERS)):  # noqa: PTH100 - links stay
            with path.open("wb") as file:
                yield file
            return
        target = Path(os.path.realpath(path))
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
            temporary.chmod(0o666 & ~_umask() if mode is None else stat.S_IMODE(mode))
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


def write_whole(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a file of these bytes; see :func:`whole_file`."""
    with whole_file(path, durable=durable) as file:
        file.write(data)


def _mode(path: Path) -> int | None:
    try:
        return path.stat().st_mode
    except FileNotFoundError:
        return None


def _umask() -> int:
    # The process's umask can only be read by setting it; temporary files are made 0600 whatever it is.
    mask = os.umask(0)
    os.umask(mask)
    return mask

"""Every error that the client raises for its input or its surroundings, as one tree.

::

    ClientError               (code)
    +-- ProgramFormatError    program_malformed  a program, operation or worker that cannot be read
    +-- ProfileError          profile_failed     a model, link or job file that the profiler cannot work with

``code`` is stable: it is what scripts may compare.
"""

from __future__ import annotations

from typing import ClassVar


class ClientError(Exception):
    """Base of every error that the client raises on purpose.

    Parameters
    ----------
    message
        What was wrong, where, and what was expected.
    hint
        What to do about it; ``None`` where the message says all.
    """

    code: ClassVar[str] = "client_error"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message} ({self.hint})"


class ProgramFormatError(ClientError):
    """A program, operation or worker that cannot be read."""

    code = "program_malformed"


class ProfileError(ClientError):
    """A model, link or job file that the profiler cannot work with."""

    code = "profile_failed"

"""Errors that only the service has; they join the tree of :mod:`planner.errors`.

::

    ReplanError
    +-- InputError
    |   +-- RequestError       request_invalid          a body that is not the document it should be
    |   +-- MediaTypeError     media_type_unsupported   a body that is not JSON
    +-- SolverError
    |   +-- SolveTimeoutError  solve_timeout            a solver process that was killed for running too long
    +-- StoreError
    |   +-- CorruptStoreError  store_corrupt            a stored document that does not match its checksum
    +-- OverloadedError        overloaded               a full queue, or too long a wait in it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.errors import InputError, ReplanError, SolverError, StoreError


class OverloadedError(ReplanError):
    """The queue of requests is full, or a request waited in it for too long."""

    code = "overloaded"


class SolveTimeoutError(SolverError):
    """A solver process ran so far past its deadline that it was killed."""

    code = "solve_timeout"


class RequestError(InputError):
    """A request body that is not the JSON document it should be."""

    code = "request_invalid"

    def __init__(self, message: str, *, hint: str | None = None, places: Sequence[Mapping[str, str]] = ()) -> None:
        super().__init__(message, hint=hint)
        self.places = tuple(places)


class MediaTypeError(InputError):
    """A request body sent as something other than JSON."""

    code = "media_type_unsupported"


class CorruptStoreError(StoreError):
    """A stored document does not match the checksum it was stored with."""

    code = "store_corrupt"

"""Errors that only the service has; they join the tree of :mod:`planner.errors`.

::

    ReplanError
    +-- InputError
    |   +-- RequestError       request_invalid          a body that is not the document it should be
    |   +-- MediaTypeError     media_type_unsupported   a body that is not JSON
    |   +-- IdempotencyConflictError  idempotency_key_reused  an idempotency key that came with another request before
    |   +-- TemplateFileError  template_file_invalid    a file of exported templates that is damaged or of another kind
    +-- SolverError
    |   +-- SolveTimeoutError  solve_timeout            a solver process that was killed for running too long
    |   +-- ClusterError       cluster_unavailable      a Ray cluster that cannot be reached or used
    +-- StoreError
    |   +-- CorruptStoreError  store_corrupt            a stored document that does not match its checksum
    |   +-- StoreFullError     store_full               no space left for what is to be stored
    |   +-- StoreReadOnlyError store_read_only          a store that can be read, but not written
    +-- EpochConflictError     epoch_conflict           a job whose epoch is not the one that the request expected
    +-- StaleBaseError         epoch_moved              a job that moved on while its next epoch was computed
    +-- OverloadedError        overloaded               a full queue, or too long a wait in it
    +-- AccessError            access_refused
    |   +-- KeyMissingError    key_missing              no API key, or none that the service knows
    |   +-- ScopeError         scope_too_small          a key that does not allow this
    |   +-- HostError          host_refused             a request without keys sent to another name than loopback's
    +-- RateLimitError         rate_limited             too many requests of one client
    +-- SlowRequestError       request_timeout          a body that did not arrive in time
    +-- LongPathError          path_too_long            a path that is longer than any that leads somewhere
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from planner.errors import InputError, ReplanError, SolverError, StoreError


class OverloadedError(ReplanError):
    """The queue of requests is full, or a request waited in it for too long."""

    code = "overloaded"


class AccessError(ReplanError):
    """Whoever asks may not have what was asked for."""

    code = "access_refused"


class KeyMissingError(AccessError):
    """A request without an API key, or with one that the service does not know."""

    code = "key_missing"
    headers: ClassVar[Mapping[str, str]] = {"WWW-Authenticate": 'Bearer realm="replan"'}


class ScopeError(AccessError):
    """The key of a request does not allow what it asks for."""

    code = "scope_too_small"


class HostError(AccessError):
    """A service without keys was asked by another name than loopback's, as a web page does that was led there."""

    code = "host_refused"


class RateLimitError(ReplanError):
    """A client sent more requests than it may.

    Parameters
    ----------
    wait_s
        Seconds after which the next one may pass.
    """

    code = "rate_limited"

    def __init__(self, message: str, *, hint: str | None = None, wait_s: float = 1.0) -> None:
        super().__init__(message, hint=hint)
        self.headers = {"Retry-After": str(max(1, math.ceil(wait_s)))}


class SlowRequestError(ReplanError):
    """A request's body did not arrive in time."""

    code = "request_timeout"
    headers: ClassVar[Mapping[str, str]] = {"Connection": "close"}


class LongPathError(ReplanError):
    """A request's path is longer than any that leads somewhere."""

    code = "path_too_long"


class SolveTimeoutError(SolverError):
    """A solver process ran so far past its deadline that it was killed."""

    code = "solve_timeout"


class ClusterError(SolverError):
    """A Ray cluster that cannot be reached, was lost, or has another version of RePlan."""

    code = "cluster_unavailable"


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


class IdempotencyConflictError(InputError):
    """An idempotency key that came with another request before."""

    code = "idempotency_key_reused"


class TemplateFileError(InputError):
    """A file of exported templates that is damaged, cut short or of another kind."""

    code = "template_file_invalid"


class StoreFullError(StoreError):
    """The disk or the database has no space left; nothing of what was to be written is stored."""

    code = "store_full"


class StoreReadOnlyError(StoreError):
    """The store can be read, but not written."""

    code = "store_read_only"


class EpochConflictError(ReplanError):
    """A job's epoch is not the one that the request expected; ``current`` is the number it has."""

    code = "epoch_conflict"

    def __init__(self, message: str, *, hint: str | None = None, current: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.current = current


class StaleBaseError(ReplanError):
    """A job moved on while its next epoch was computed: compute again from its new epoch."""

    code = "epoch_moved"

"""Every error that the client raises for its input or its surroundings, as one tree.

::

    ClientError                    (code)
    +-- ProgramFormatError         program_malformed   a program, operation or worker that cannot be read
    +-- ArgumentError              argument_invalid    something that cannot be sent to a service
    +-- ServiceUnreachableError    service_unreachable no answer in time
    +-- AnswerError                answer_invalid      an answer that is none of RePlan's: no JSON, or another form
    |   +-- AnswerTooLargeError    answer_too_large    an answer beyond the limit
    |   +-- DigestMismatchError    digest_mismatch     an answer whose bytes are not those that its digest stands for
    |   +-- OlderEpochError        epoch_older         an epoch older than one that the same service gave before
    |   +-- ProgramMismatchError   program_mismatch    a program of another worker, epoch, job or plan
    +-- JobDeletedError            job_deleted         a job that was deleted while it was followed
    +-- ClosedError                closed              a client or watcher that was closed already
    +-- ProblemError               (the service's)     what the service refused or could not do
        +-- AccessError            key_missing, scope_too_small, host_refused, access_refused
        +-- NotFoundError          not_found           no such job, epoch or live worker
        +-- EpochConflictError     epoch_conflict      a job that is at another epoch than the request says
        +-- AlreadyFailedError     already_failed      a report of what was known to be down
        +-- NotFailedError         not_failed          a recovery of what was not down
        +-- NoPlanError            no_plan, optimizer_shard_lost, memory_too_small
        |   +-- StageLostError     stage_lost          nobody holds a stage's parameters any more
        +-- RequestRefusedError    any other code below 500
        +-- UnavailableError       any code with status 429, 502, 503 or 504, once all tries are used up
        +-- ServiceFaultError      any other code from 500 on

``code`` is stable: it is what scripts may compare. A code that this version does not know is kept as the service gave it.
"""

from __future__ import annotations

from collections.abc import Sequence


class ClientError(Exception):
    """Base of every error that the client raises on purpose.

    Parameters
    ----------
    message
        What was wrong, where, and what was expected.
    hint
        What to do about it; ``None`` where the message says all.
    """

    code: str = "client_error"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message} ({self.hint})"


class ProgramFormatError(ClientError):
    """A program, operation or worker that cannot be read."""

    code = "program_malformed"


class ArgumentError(ClientError):
    """Something that cannot be sent to a service: no URL, no job id, no worker's name."""

    code = "argument_invalid"


class ServiceUnreachableError(ClientError):
    """A service that gave no whole answer within the time for all tries."""

    code = "service_unreachable"


class AnswerError(ClientError):
    """An answer that is none of RePlan's: not JSON, or not of the form that it should have."""

    code = "answer_invalid"


class AnswerTooLargeError(AnswerError):
    """An answer with more bytes than the client reads."""

    code = "answer_too_large"


class DigestMismatchError(AnswerError):
    """An answer whose bytes are not those that its digest stands for."""

    code = "digest_mismatch"


class OlderEpochError(AnswerError):
    """An epoch that is older than one that the same service gave before."""

    code = "epoch_older"


class ProgramMismatchError(AnswerError):
    """A program that is not the one asked for: of another worker, epoch, job or plan."""

    code = "program_mismatch"


class JobDeletedError(ClientError):
    """A job that was deleted while it was followed."""

    code = "job_deleted"


class ClosedError(ClientError):
    """A client or watcher that is used after it was closed."""

    code = "closed"


class ProblemError(ClientError):
    """What the service refused or could not do.

    Parameters
    ----------
    message
        The service's own words.
    hint
        What to do about it.
    code
        The service's code; ``None`` for that of the class.
    status
        HTTP status of the answer; ``None`` where the problem stood in an epoch.
    instance
        What the service's log tells more under; ``None`` for nothing.
    places
        Where in the request the faults are: JSON pointer and what is wrong there.
    current_epoch
        The job's current epoch, where the service says it.
    """

    code = "problem"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        code: str | None = None,
        status: int | None = None,
        instance: str | None = None,
        places: Sequence[tuple[str, str]] = (),
        current_epoch: int | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        if code is not None:
            self.code = code
        self.status = status
        self.instance = instance
        self.places = tuple(places)
        self.current_epoch = current_epoch


class AccessError(ProblemError):
    """A missing or unknown API key, or one that does not allow this."""

    code = "access_refused"


class NotFoundError(ProblemError):
    """No such job, epoch or live worker."""

    code = "not_found"


class EpochConflictError(ProblemError):
    """A job that is at another epoch than the request says; ``current_epoch`` is the one it is at."""

    code = "epoch_conflict"


class AlreadyFailedError(ProblemError):
    """A report of what was known to be down."""

    code = "already_failed"


class NotFailedError(ProblemError):
    """A recovery of what was not down."""

    code = "not_failed"


class NoPlanError(ProblemError):
    """Failures that no plan works around."""

    code = "no_plan"


class StageLostError(NoPlanError):
    """A slot without a live worker: nobody holds its stages' parameters any more."""

    code = "stage_lost"


class RequestRefusedError(ProblemError):
    """A request that the service does not take as it is."""

    code = "request_refused"


class UnavailableError(ProblemError):
    """A service that cannot answer now, and could not within the time for all tries."""

    code = "service_unavailable"


class ServiceFaultError(ProblemError):
    """A fault of the service."""

    code = "service_fault"

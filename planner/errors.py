"""Every error RePlan raises for its input or its surroundings, as one tree.

::

    ReplanError                      (code)
    +-- InputError
    |   +-- JobFileError             job_invalid        the job file does not describe a job
    |   +-- DocumentLimitError       document_limit     larger or deeper than a document may be
    |   +-- HostlistError            hostlist_malformed a Slurm hostlist that cannot be read
    |   +-- FailureSetError          failure_invalid    a failure names what the job does not have
    |   |   +-- UnknownNodeError     unknown_node       a node that the job does not have
    |   |   +-- NotFailedError       not_failed         something recovers that was not down or slow
    |   |   +-- AlreadyFailedError   already_failed     a failure that changes nothing
    |   +-- ProblemError             problem_invalid    costs, memory or placement that make no sense
    |   +-- OptionError              option_invalid     an option outside its range
    |   +-- ScheduleFormatError      schedule_malformed a schedule text or column that cannot be read
    |   +-- NotExpressibleError      not_expressible    a plan that the format asked for cannot hold
    |   +-- PlanFileError            plan_invalid       a plan file that is cut short or has the wrong form
    |       +-- PlanHashError        plan_hash_mismatch a plan file whose content does not match its id
    +-- NoPlanError
    |   +-- StageLostError           stage_lost             a slot without a live worker
    |   +-- OptimizerShardLostError  optimizer_shard_lost   a failure took the only copy of optimizer state
    |   +-- MemoryTooSmallError      memory_too_small       not even one microbatch fits
    +-- ScheduleError
    |   +-- InvalidScheduleError     schedule_invalid   a schedule that breaks a constraint
    |   +-- DeadlockError            program_deadlock   programs that wait for each other in a cycle
    +-- SolverError
    |   +-- SolverMissingError       solver_missing     a solver that is not installed
    |   +-- SolverCrashedError       solver_crashed     a solver process that ended without an answer
    +-- NotFoundError                not_found          a plan or worker that is not there
    +-- StoreError                   store_failed       the store cannot be read or written
    +-- ListenError                  listen_failed      an address that the service cannot listen on

``code`` is stable: it is what HTTP clients see and what scripts may compare.
"""

from __future__ import annotations

from typing import ClassVar


class ReplanError(Exception):
    """Base of every error that RePlan raises on purpose.

    Parameters
    ----------
    message
        What was wrong, where, and what was expected.
    hint
        What to do about it; ``None`` where the message says all.
    """

    code: ClassVar[str] = "replan_error"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message} ({self.hint})"


class InputError(ReplanError):
    """What came in cannot be used."""

    code = "input_invalid"


class JobFileError(InputError):
    """The job file does not describe a job."""

    code = "job_invalid"


class DocumentLimitError(InputError):
    """A document is larger or nested deeper than a document may be."""

    code = "document_limit"


class HostlistError(InputError):
    """A Slurm hostlist that cannot be read."""

    code = "hostlist_malformed"


class FailureSetError(InputError):
    """A failure set names a node, rank or worker that the job does not have."""

    code = "failure_invalid"


class UnknownNodeError(FailureSetError):
    """A failure names a node that the job does not have."""

    code = "unknown_node"


class NotFailedError(FailureSetError):
    """Something is said to recover that was neither down nor slow."""

    code = "not_failed"


class AlreadyFailedError(FailureSetError):
    """A failure that changes nothing, or contradicts what is known to be down."""

    code = "already_failed"


class ProblemError(InputError):
    """Costs, memory, microbatches or placement that make no sense together."""

    code = "problem_invalid"


class OptionError(InputError):
    """An option is outside its documented range."""

    code = "option_invalid"


class ScheduleFormatError(InputError):
    """A schedule's text or columns cannot be read."""

    code = "schedule_malformed"


class NotExpressibleError(InputError):
    """A plan holds what the format asked for cannot say."""

    code = "not_expressible"


class PlanFileError(InputError):
    """A plan file is cut short or does not have a plan's form."""

    code = "plan_invalid"


class PlanHashError(PlanFileError):
    """A plan file's content does not match its id: it was edited or damaged."""

    code = "plan_hash_mismatch"


class NoPlanError(ReplanError):
    """The input is sound, but rerouting cannot answer it."""

    code = "no_plan"


class StageLostError(NoPlanError):
    """A slot has no live worker left."""

    code = "stage_lost"


class OptimizerShardLostError(NoPlanError):
    """A failure took the only copy of a shard of the optimizer state."""

    code = "optimizer_shard_lost"


class MemoryTooSmallError(NoPlanError):
    """A worker's memory does not hold even one microbatch through the stages of its slot."""

    code = "memory_too_small"


class ScheduleError(ReplanError):
    """A schedule or a set of programs that must not leave the system."""

    code = "schedule_error"


class InvalidScheduleError(ScheduleError):
    """A schedule breaks a constraint of its problem."""

    code = "schedule_invalid"


class DeadlockError(ScheduleError):
    """Programs wait for each other in a cycle."""

    code = "program_deadlock"


class SolverError(ReplanError):
    """A solver could not be run to an answer."""

    code = "solver_error"


class SolverMissingError(SolverError):
    """A solver is not installed."""

    code = "solver_missing"


class SolverCrashedError(SolverError):
    """A solver process ended without an answer."""

    code = "solver_crashed"


class NotFoundError(ReplanError):
    """A plan, worker or job that is not there."""

    code = "not_found"


class StoreError(ReplanError):
    """The store cannot be read or written."""

    code = "store_failed"


class ListenError(ReplanError):
    """The service cannot listen on the address that it was given."""

    code = "listen_failed"

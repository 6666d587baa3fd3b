"""What the executor raises for its input and for what breaks around it.

::

    ClientError                        (code)
    +-- ExecutorError
        +-- LinkBrokenError            link_broken         a peer died, left or did not answer in time
        +-- ProgramMismatchError       program_mismatch    a program that this process cannot run
        +-- StageShapeError            stage_shape         a stage does not take what the one before gives
        +-- UnsplittableStageError     stage_unsplittable  I and W planned for a stage that only runs B
        +-- SharedParameterError       parameter_shared    a parameter that two stages have in common
        +-- TraceError                 trace_unwritten     a timeline that cannot be written
"""

from __future__ import annotations

from replan_client.errors import ClientError
from replan_client.operation import Worker


class ExecutorError(ClientError):
    """Base of what the executor raises."""

    code = "executor_error"


class LinkBrokenError(ExecutorError):
    """An operation between workers failed or timed out, or the links are closed: this generation is over.

    Parameters
    ----------
    message
        What was being done and what broke it.
    peer
        Position of the other side, where there is only one. It need not be the one that died: who waits for somebody
        that left because of a death learns of the leaving only.
    hint
        What to do about it.
    """

    code = "link_broken"

    def __init__(self, message: str, *, peer: Worker | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.peer = peer


class ProgramMismatchError(ExecutorError):
    """A program for another worker, for stages that this process does not hold, or that cannot be run in its order."""

    code = "program_mismatch"


class StageShapeError(ExecutorError):
    """A stage's module does not take what the stage before it gives."""

    code = "stage_shape"


class UnsplittableStageError(ExecutorError):
    """A program has I and W for a stage whose module only runs the fused backward B."""

    code = "stage_unsplittable"


class SharedParameterError(ExecutorError):
    """A parameter that two stages of one worker have in common."""

    code = "parameter_shared"


class TraceError(ExecutorError):
    """A timeline that cannot be written."""

    code = "trace_unwritten"

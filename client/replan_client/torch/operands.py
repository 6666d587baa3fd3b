"""Which message an operation takes and which it makes, each named by the operation that needs it."""

from __future__ import annotations

from replan_client.operation import Kind, Operation


def message_taken(operation: Operation, num_stages: int) -> Operation | None:
    """The activation or gradient that an operation takes; ``None`` for the first F, the last I or B, and W.

    Examples
    --------
    >>> from replan_client.operation import parse_operation
    >>> str(message_taken(parse_operation("1B0.2"), 3))
    '1I0.2'
    """
    kind = Kind.F if operation.kind is Kind.F else Kind.I
    first, last = operation.stage == 0, operation.stage == num_stages - 1
    if operation.kind is Kind.W or (first if kind is Kind.F else last):
        return None
    return Operation(kind, operation.stage, operation.pipeline, operation.microbatch)


def message_made(operation: Operation, num_stages: int) -> Operation | None:
    """The activation or gradient that an operation makes; ``None`` for the last F, the first I or B, and W.

    Examples
    --------
    >>> from replan_client.operation import parse_operation
    >>> str(message_made(parse_operation("1B0.2"), 3))
    '0I0.2'
    """
    kind = Kind.F if operation.kind is Kind.F else Kind.I
    stage = operation.stage + (1 if kind is Kind.F else -1)
    if operation.kind is Kind.W or not 0 <= stage < num_stages:
        return None
    return Operation(kind, stage, operation.pipeline, operation.microbatch)

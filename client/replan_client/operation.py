"""Operations: what a worker executes, and their text form.

The text form is ``<stage><kind><pipeline>.<microbatch>``: ``2F1.3`` is the forward of stage 2 for microbatch 3 whose
home is pipeline 1. Parsing is strict both ways: ``str`` and :func:`parse_operation` are each other's inverse.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from replan_client.errors import ProgramFormatError


class Kind(IntEnum):
    """Kind of an operation, in PyTorch's letters."""

    F = 0
    """Forward."""
    I = 1  # noqa: E741 - the field's letter
    """Input gradient."""
    W = 2
    """Weight gradient."""
    B = 3
    """Fused input and weight gradient."""


@dataclass(frozen=True, slots=True, order=True)
class Worker:
    """What executes one slot of one pipeline. Text form ``<pipeline>/<slot>``."""

    pipeline: int
    slot: int

    def __str__(self) -> str:
        return f"{self.pipeline}/{self.slot}"


@dataclass(frozen=True, slots=True, order=True)
class Operation:
    """One forward, input-gradient, weight-gradient or fused backward of one microbatch at one stage.

    ``pipeline`` is the home of the microbatch, not where the operation runs.
    """

    kind: Kind
    stage: int
    pipeline: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.kind.name}{self.pipeline}.{self.microbatch}"


_NUMBER = r"(0|[1-9][0-9]{0,8})"
_OPERATION = re.compile(rf"{_NUMBER}([FIWB]){_NUMBER}\.{_NUMBER}")
_WORKER = re.compile(rf"{_NUMBER}/{_NUMBER}")


def parse_operation(text: str) -> Operation:
    """Read an operation's text form.

    Raises
    ------
    ProgramFormatError
        If ``text`` is anything but the exact text form.

    Examples
    --------
    >>> parse_operation("2F1.3")
    Operation(kind=<Kind.F: 0>, stage=2, pipeline=1, microbatch=3)
    """
    match = _OPERATION.fullmatch(text)
    if match is None:
        raise ProgramFormatError(f"operation {text!r} cannot be read; expected the form 2F1.3, kind one of F, I, W, B")
    return Operation(Kind[match[2]], int(match[1]), int(match[3]), int(match[4]))


def parse_worker(text: str) -> Worker:
    """Read a worker's text form ``<pipeline>/<slot>``.

    Raises
    ------
    ProgramFormatError
        If ``text`` is anything but the exact text form.
    """
    match = _WORKER.fullmatch(text)
    if match is None:
        raise ProgramFormatError(f"worker {text!r} cannot be read; expected pipeline/slot such as 1/2")
    return Worker(int(match[1]), int(match[2]))

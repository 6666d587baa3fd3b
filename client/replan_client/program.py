"""Programs: what one worker executes in one iteration, instruction by instruction.

A message is named by the operation that needs it: ``3F1.2`` is the activation that F of stage 3 takes for microbatch 2 of
pipeline 1, ``3I1.2`` the gradient that its backward (I or B) takes. Sender and receiver use the same name.

===================================================  ===========================================================
text                                                 meaning
===================================================  ===========================================================
``RECV_F 3F1.2 from 1/2``                            post the buffer for an activation; does not block
``RECV_I 3I1.2 from 1/4``                            post the buffer for a gradient; does not block
``COMPUTE 3F1.2``                                    wait for the data of its receive, then run the operation
``SEND_F 4F1.2 to 1/4``                              send an activation; blocks until its receive is posted there
``SEND_I 2I1.2 to 1/2``                              send a gradient; blocks until its receive is posted there
``ALL_REDUCE 3 pipelines 0,2-5 weight 1/18``         sum the stage's gradients over the slot's workers in these
                                                     pipelines, each microbatch's weighted so
``GLOBAL_BARRIER``                                   wait until every live worker is here
``OPTIMIZER_STEP 3``                                 step the stage's parameters
===================================================  ===========================================================

Text and dictionary forms are strict both ways. The service has a reader and writer of its own, since what a training image
installs holds nothing of the planner; tests compare the two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from replan_client.errors import ProgramFormatError
from replan_client.operation import Kind, Operation, Worker, parse_operation, parse_worker


@dataclass(frozen=True, slots=True)
class Receive:
    """Post a receive buffer for a message, without blocking."""

    message: Operation
    source: Worker

    def __str__(self) -> str:
        return f"RECV_{self.message.kind.name} {self.message} from {self.source}"


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message; blocks until the receiver has posted its buffer."""

    message: Operation
    target: Worker

    def __str__(self) -> str:
        return f"SEND_{self.message.kind.name} {self.message} to {self.target}"


@dataclass(frozen=True, slots=True)
class Compute:
    """Run an operation once the data of its receive, if it has one, is there."""

    operation: Operation

    def __str__(self) -> str:
        return f"COMPUTE {self.operation}"


@dataclass(frozen=True, slots=True)
class AllReduce:
    """Sum a stage's gradients over the slot's live workers.

    Parameters
    ----------
    stage
        The stage.
    pipelines
        Pipelines of the workers that take part, this one among them; ascending, at least one.
    weight
        Weight of each microbatch's gradient: one over the number of microbatches of the whole iteration, whoever ran them.
    """

    stage: int
    pipelines: tuple[int, ...]
    weight: Fraction

    def __str__(self) -> str:
        weight = f"{self.weight.numerator}/{self.weight.denominator}"
        return f"ALL_REDUCE {self.stage} pipelines {_ranges_to_text(self.pipelines)} weight {weight}"


@dataclass(frozen=True, slots=True)
class GlobalBarrier:
    """Wait until every live worker of the job is here."""

    def __str__(self) -> str:
        return "GLOBAL_BARRIER"


@dataclass(frozen=True, slots=True)
class OptimizerStep:
    """Step a stage's parameters."""

    stage: int

    def __str__(self) -> str:
        return f"OPTIMIZER_STEP {self.stage}"


Instruction: TypeAlias = Receive | Send | Compute | AllReduce | GlobalBarrier | OptimizerStep


@dataclass(frozen=True, slots=True)
class Program:
    """Instructions of one worker for one iteration, in order."""

    worker: Worker
    instructions: tuple[Instruction, ...]

    def to_text(self) -> str:
        """Text form: the worker, then one instruction a line, each indented by two spaces."""
        return "".join([f"{self.worker}:\n", *(f"  {instruction}\n" for instruction in self.instructions)])

    def to_dict(self) -> dict[str, object]:
        """Form for JSON: ``{"worker": "1/2", "instructions": ["RECV_F 3F1.2 from 1/2", ...]}``."""
        return {"worker": str(self.worker), "instructions": [str(i) for i in self.instructions]}


_NUMBER = r"(?:0|[1-9][0-9]{0,8})"
_MESSAGE = re.compile(r"(RECV|SEND)_([FI]) (\S+) (from|to) (\S+)")
_ALL_REDUCE = re.compile(rf"ALL_REDUCE ({_NUMBER}) pipelines (\S+) weight (1)/([1-9][0-9]{{0,8}})")
_STEP = re.compile(rf"OPTIMIZER_STEP ({_NUMBER})")
_RANGE = re.compile(rf"({_NUMBER})(?:-({_NUMBER}))?")


def parse_instruction(text: str) -> Instruction:
    """Read an instruction's text form.

    Raises
    ------
    ProgramFormatError
        If ``text`` is anything but the exact text form.

    Examples
    --------
    >>> str(parse_instruction("RECV_F 3F1.2 from 1/2"))
    'RECV_F 3F1.2 from 1/2'
    """
    instruction: Instruction | None = None
    if text == "GLOBAL_BARRIER":
        instruction = GlobalBarrier()
    elif text.startswith("COMPUTE "):
        instruction = Compute(parse_operation(text.removeprefix("COMPUTE ")))
    elif match := _MESSAGE.fullmatch(text):
        message, peer = parse_operation(match[3]), parse_worker(match[5])
        if message.kind is Kind[match[2]]:
            instruction = Receive(message, peer) if match[1] == "RECV" else Send(message, peer)
    elif match := _ALL_REDUCE.fullmatch(text):
        instruction = AllReduce(int(match[1]), _parse_ranges(match[2]), Fraction(1, int(match[4])))
    elif match := _STEP.fullmatch(text):
        instruction = OptimizerStep(int(match[1]))
    # Whatever reads but would be written otherwise is refused too.
    if instruction is None or str(instruction) != text:
        raise ProgramFormatError(
            f"instruction {text[:80]!r} cannot be read; expected a form such as 'RECV_F 3F1.2 from 1/2', 'COMPUTE 3F1.2' "
            "or 'OPTIMIZER_STEP 3'"
        )
    return instruction


def parse_program(text: str) -> Program:
    """Read a program's text form.

    Raises
    ------
    ProgramFormatError
        Naming the line, if ``text`` is anything but the exact text form.
    """
    head, *lines = text.split("\n")
    if not head.endswith(":") or not lines or lines[-1] != "":
        raise ProgramFormatError("a program begins with 'pipeline/slot:' and ends in a newline")
    worker = parse_worker(head[:-1])
    instructions = []
    for number, line in enumerate(lines[:-1], start=2):
        if not line.startswith("  "):
            raise ProgramFormatError(f"line {number}: expected two spaces and an instruction, found {line[:40]!r}")
        try:
            instructions.append(parse_instruction(line[2:]))
        except ProgramFormatError as error:
            raise ProgramFormatError(f"line {number}: {error.message}") from error
    return Program(worker, tuple(instructions))


def program_from_dict(document: Mapping[str, object]) -> Program:
    """Read a program's form for JSON.

    Raises
    ------
    ProgramFormatError
        If keys are missing or unknown, or a value cannot be read.
    """
    if set(document) != {"worker", "instructions"}:
        raise ProgramFormatError(f"a program has the keys {sorted(document)}; expected ['instructions', 'worker']")
    worker, texts = document["worker"], document["instructions"]
    if not isinstance(worker, str) or not isinstance(texts, list):
        raise ProgramFormatError("a program's worker is a string and its instructions are a list of strings")
    instructions = []
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ProgramFormatError(f"instruction {number} is {text!r}; expected a string")
        try:
            instructions.append(parse_instruction(text))
        except ProgramFormatError as error:
            raise ProgramFormatError(f"instruction {number}: {error.message}") from error
    return Program(parse_worker(worker), tuple(instructions))


def _ranges_to_text(numbers: tuple[int, ...]) -> str:
    """Ascending numbers with runs shortened: ``0,2-5``."""
    parts: list[str] = []
    begin = 0
    for i in range(1, len(numbers) + 1):
        if i == len(numbers) or numbers[i] != numbers[i - 1] + 1:
            first, last = numbers[begin], numbers[i - 1]
            parts.append(str(first) if first == last else f"{first}-{last}")
            begin = i
    return ",".join(parts)


def _parse_ranges(text: str) -> tuple[int, ...]:
    numbers: list[int] = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ProgramFormatError(f"pipelines {text[:80]!r} cannot be read; expected a form such as 0,2-5")
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if last - first > _MOST_PIPELINES or (numbers and first <= numbers[-1]):
            raise ProgramFormatError(f"pipelines {text[:80]!r} are not ascending, or too many")
        numbers.extend(range(first, last + 1))
    return tuple(numbers)


_MOST_PIPELINES = 1_000_000
"""Longest run of pipelines read: a short text must not unfold into gigabytes."""

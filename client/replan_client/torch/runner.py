"""Runs a worker's programs, iteration after iteration, over the links of one generation."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from replan_client.operation import Kind, Operation, Worker
from replan_client.program import AllReduce, Instruction, OptimizerStep, Program, Receive, Send
from replan_client.program import Compute as ComputeInstruction
from replan_client.torch.compute import Compute
from replan_client.torch.links import Links
from replan_client.torch.operands import message_made, message_taken
from replan_client.torch.program_check import require_runnable
from replan_client.torch.timeline import Activity, TimelineEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class IterationResult:
    """What one worker did in one iteration.

    Parameters
    ----------
    iteration
        Number of the iteration.
    losses
        Loss of each microbatch ``(pipeline, microbatch)`` whose last stage ran here.
    peak_in_flight
        Most microbatches at a time whose F had started here and whose W or B had not ended; over all stages held here, a
        microbatch counts once for each.
    peak_before_input_grad
        Most of them whose I or B had not ended.
    events
        What ran when, in the order of its end.
    """

    iteration: int
    losses: dict[tuple[int, int], float]
    peak_in_flight: int
    peak_before_input_grad: int
    events: tuple[TimelineEvent, ...]


class Runner:
    """Runs programs of one worker.

    Where :meth:`run_iteration` returns, every stage has been stepped; where it raises a
    :class:`~replan_client.torch.errors.LinkBrokenError`, none has: all that needs others is done before the first step.

    Parameters
    ----------
    links
        Links of the generation.
    compute
        The stages held here.
    before_step
        Called with the iteration and the stage before each stage's step, once all gradients are summed.
    """

    def __init__(
        self,
        links: Links,
        compute: Compute,
        *,
        before_step: Callable[[int, int], None] | None = None,
    ) -> None:
        self._links = links
        self._compute = compute
        self._before_step = before_step
        self._checked: Program | None = None

    def check(self, program: Program) -> None:
        """Refuse a program that cannot be run here, before anything of it is run.

        Raises
        ------
        ProgramMismatchError
            If it is for another worker, for stages not held here or with workers that are not there, or if it uses what it
            has neither computed nor received.
        UnsplittableStageError
            If it has I and W for a stage that only runs B.
        """
        require_runnable(
            program,
            me=self._links.me,
            positions=self._links.positions,
            stages=self._compute.stages,
            num_stages=self._compute.num_stages,
        )
        self._compute.check(program)
        self._checked = program

    def run_iteration(self, iteration: int, program: Program) -> IterationResult:
        """Run a program once; the first time it is checked before.

        Raises
        ------
        ProgramMismatchError, UnsplittableStageError
            As :meth:`check`; the links stay as they are.
        LinkBrokenError
            If somebody has died, left, or does not answer in time. The links are closed then, as they are where a module
            or the data raises: the others learn of it at once.
        """
        if program is not self._checked:
            self.check(program)
        try:
            run = _Iteration(iteration, self._links, self._compute, self._before_step)
            for instruction in program.instructions:
                run.take(instruction)
            return run.finish()
        except BaseException:
            self._links.close()
            raise


class _Iteration:
    """One iteration under way."""

    def __init__(
        self, iteration: int, links: Links, compute: Compute, before_step: Callable[[int, int], None] | None
    ) -> None:
        self._iteration = iteration
        self._links = links
        self._compute = compute
        self._before_step = before_step
        self._num_stages = compute.num_stages
        self._made: dict[Operation, torch.Tensor] = {}
        self._sources: dict[Operation, Worker] = {}
        self._is_flushed = False
        self._in_flight = _Peak()
        self._before_input_grad = _Peak()
        self._events: list[TimelineEvent] = []
        compute.start(iteration)

    def take(self, instruction: Instruction) -> None:
        """Execute one instruction."""
        if isinstance(instruction, ComputeInstruction):
            self._run(instruction.operation)
        elif isinstance(instruction, Receive):
            message = instruction.message
            self._links.post_receive(message, instruction.source, self._compute.message_spec(message))
            self._sources[message] = instruction.source
        elif isinstance(instruction, Send):
            began = time.monotonic_ns()
            self._links.send(instruction.message, instruction.target, self._made.pop(instruction.message))
            self._note(Activity.SEND, began, operation=instruction.message, peer=instruction.target)
        elif isinstance(instruction, AllReduce):
            self._flush()
            began = time.monotonic_ns()
            self._compute.reduce(instruction.stage, float(instruction.weight), self._links.all_reduce)
            self._note(Activity.ALL_REDUCE, began, stage=instruction.stage)
        elif isinstance(instruction, OptimizerStep):
            self._step(instruction.stage)
        else:
            self._flush()
            began = time.monotonic_ns()
            self._links.barrier()
            self._note(Activity.BARRIER, began)

    def finish(self) -> IterationResult:
        """End the iteration."""
        return IterationResult(
            iteration=self._iteration,
            losses=self._compute.finish(),
            peak_in_flight=self._in_flight.peak,
            peak_before_input_grad=self._before_input_grad.peak,
            events=tuple(self._events),
        )

    def _run(self, operation: Operation) -> None:
        needed = message_taken(operation, self._num_stages)
        value = None if needed is None else self._input(needed)
        if operation.kind is Kind.F:
            self._in_flight.add(1)
            self._before_input_grad.add(1)
        began = time.monotonic_ns()
        result = self._compute.run(operation, value)
        self._note(Activity.COMPUTE, began, operation=operation)
        if operation.kind in (Kind.I, Kind.B):
            self._before_input_grad.add(-1)
        if operation.kind in (Kind.W, Kind.B):
            self._in_flight.add(-1)
        message = message_made(operation, self._num_stages)
        if message is not None:
            assert result is not None, f"{operation} made nothing"
            self._made[message] = result

    def _input(self, message: Operation) -> torch.Tensor:
        """A message, made here or received."""
        if message in self._made:
            return self._made.pop(message)
        began = time.monotonic_ns()
        value = self._links.wait(message)
        self._note(Activity.RECEIVE, began, operation=message, peer=self._sources.pop(message))
        return value

    def _flush(self) -> None:
        """Wait for what was sent, once, before the first collective: who passes one knows that all its members are done."""
        if not self._is_flushed:
            began = time.monotonic_ns()
            self._links.wait_sends()
            self._note(Activity.FLUSH, began)
            self._is_flushed = True

    def _step(self, stage: int) -> None:
        self._flush()
        if self._before_step is not None:
            self._before_step(self._iteration, stage)
        began = time.monotonic_ns()
        self._compute.step(stage)
        self._note(Activity.STEP, began, stage=stage)

    def _note(
        self,
        activity: Activity,
        began: int,
        *,
        operation: Operation | None = None,
        peer: Worker | None = None,
        stage: int | None = None,
    ) -> None:
        self._events.append(
            TimelineEvent(
                activity=activity,
                iteration=self._iteration,
                start_ns=began,
                end_ns=time.monotonic_ns(),
                operation=operation,
                peer=peer,
                stage=stage,
            )
        )


class _Peak:
    """A number that goes up and down, and the highest it was."""

    def __init__(self) -> None:
        self._now = 0
        self.peak = 0

    def add(self, change: int) -> None:
        self._now += change
        self.peak = max(self.peak, self._now)

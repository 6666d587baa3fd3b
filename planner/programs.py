"""The programs of all workers together, held in columns: a large job has hundreds of thousands of instructions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from fractions import Fraction

import numpy as np

from planner.errors import NotFoundError, ScheduleFormatError
from planner.operation import Kind, Operation, Worker
from planner.program import (
    AllReduce,
    Compute,
    GlobalBarrier,
    Instruction,
    OptimizerStep,
    Program,
    Receive,
    Send,
)
from planner.schedule import IntColumn


class Opcode(IntEnum):
    """What an instruction does; the value is what columns hold."""

    RECEIVE = 0
    COMPUTE = 1
    SEND = 2
    ALL_REDUCE = 3
    GLOBAL_BARRIER = 4
    OPTIMIZER_STEP = 5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Programs:
    """Programs of every live worker for one iteration.

    Columns are int64 arrays; ``R`` is the number of instructions of all workers. Instructions of worker ``(k, s)`` are
    the rows ``offsets[k * P + s]:offsets[k * P + s + 1]``.

    Parameters
    ----------
    num_slots, num_stages
        ``P`` and ``V``.
    microbatches
        Microbatches whose home is each of the ``D`` pipelines.
    dead
        Workers that are down and have no program.
    offsets
        Shape ``(D * P + 1,)``.
    opcode
        Shape ``(R,)``: an :class:`Opcode`.
    kind, stage, pipeline, microbatch
        Shape ``(R,)`` each: the operation, or the message named by the operation that needs it; kind ``I`` for every
        gradient. 0 where the instruction has none of it.
    peer
        Shape ``(R,)``: worker index of a message's other side; elsewhere the worker's own.
    """

    num_slots: int
    num_stages: int
    microbatches: tuple[int, ...]
    dead: frozenset[Worker]
    offsets: IntColumn
    opcode: IntColumn
    kind: IntColumn
    stage: IntColumn
    pipeline: IntColumn
    microbatch: IntColumn
    peer: IntColumn

    @property
    def num_pipelines(self) -> int:
        """``D``, the number of pipelines."""
        return len(self.microbatches)

    @property
    def num_instructions(self) -> int:
        """``R``, the number of instructions over all workers."""
        return int(self.opcode.shape[0])

    @property
    def gradient_weight(self) -> Fraction:
        """Weight of each microbatch's gradient: one over the number of microbatches of the iteration."""
        return Fraction(1, sum(self.microbatches))

    def worker_at(self, index: int) -> Worker:
        """Worker of a worker index."""
        return Worker(index // self.num_slots, index % self.num_slots)

    def workers(self) -> Iterator[Worker]:
        """Live workers, by pipeline and slot."""
        for index in range(self.num_pipelines * self.num_slots):
            worker = self.worker_at(index)
            if worker not in self.dead:
                yield worker

    def live_pipelines(self, slot: int) -> tuple[int, ...]:
        """Pipelines whose worker in ``slot`` is live, ascending."""
        return tuple(k for k in range(self.num_pipelines) if Worker(k, slot) not in self.dead)

    def instruction(self, row: int) -> Instruction:
        """Instruction in a row."""
        index = int(self.offsets.searchsorted(row, side="right")) - 1
        return self._instruction(row, self.live_pipelines(index % self.num_slots))

    def program(self, worker: Worker) -> Program:
        """Program of one worker.

        Raises
        ------
        NotFoundError
            If the job has no such worker, or it is down.
        """
        if not (0 <= worker.pipeline < self.num_pipelines and 0 <= worker.slot < self.num_slots):
            raise NotFoundError(
                f"there is no worker {worker}; expected pipelines 0..{self.num_pipelines - 1}, "
                f"slots 0..{self.num_slots - 1}"
            )
        if worker in self.dead:
            raise NotFoundError(f"worker {worker} is down and has no program")
        index = worker.pipeline * self.num_slots + worker.slot
        peers = self.live_pipelines(worker.slot)
        rows = range(int(self.offsets[index]), int(self.offsets[index + 1]))
        return Program(worker, tuple(self._instruction(row, peers) for row in rows))

    def _instruction(self, row: int, peers: tuple[int, ...]) -> Instruction:
        opcode, stage = Opcode(int(self.opcode[row])), int(self.stage[row])
        if opcode is Opcode.ALL_REDUCE:
            return AllReduce(stage, peers, self.gradient_weight)
        if opcode is Opcode.GLOBAL_BARRIER:
            return GlobalBarrier()
        if opcode is Opcode.OPTIMIZER_STEP:
            return OptimizerStep(stage)
        operation = Operation(Kind(int(self.kind[row])), stage, int(self.pipeline[row]), int(self.microbatch[row]))
        if opcode is Opcode.COMPUTE:
            return Compute(operation)
        peer = self.worker_at(int(self.peer[row]))
        return Receive(operation, peer) if opcode is Opcode.RECEIVE else Send(operation, peer)


def join_programs(
    programs: Iterable[Program], *, num_slots: int, num_stages: int, microbatches: tuple[int, ...]
) -> Programs:
    """Put programs that were written or fetched one by one together again, so that they can be checked as a whole.

    Workers without a program count as dead.

    Raises
    ------
    ScheduleFormatError
        If a worker stands twice or does not exist, an instruction names what the job does not have, or an all-reduce
        names other pipelines or another weight than the live workers and microbatches of the job.
    """
    by_worker: dict[Worker, Program] = {}
    every = [Worker(k, s) for k in range(len(microbatches)) for s in range(num_slots)]
    for program in programs:
        if program.worker in by_worker:
            raise ScheduleFormatError(f"worker {program.worker} has two programs; expected one")
        by_worker[program.worker] = program
    strangers = set(by_worker) - set(every)
    if strangers:
        raise ScheduleFormatError(
            f"worker {min(strangers)} lies outside {len(microbatches)} pipelines x {num_slots} slots"
        )
    rows: list[tuple[int, ...]] = []
    offsets = [0]
    for index, worker in enumerate(every):
        if worker in by_worker:
            rows.extend(_to_row(i, index, num_slots) for i in by_worker[worker].instructions)
        offsets.append(len(rows))
    columns = np.array(rows, dtype=np.int64).reshape(len(rows), 6)
    joined = Programs(
        num_slots=num_slots,
        num_stages=num_stages,
        microbatches=microbatches,
        dead=frozenset(every) - frozenset(by_worker),
        offsets=np.array(offsets, dtype=np.int64),
        opcode=columns[:, 0].copy(),
        kind=columns[:, 1].copy(),
        stage=columns[:, 2].copy(),
        pipeline=columns[:, 3].copy(),
        microbatch=columns[:, 4].copy(),
        peer=columns[:, 5].copy(),
    )
    for worker, program in by_worker.items():
        _require_known(joined, worker, program)
    return joined


def _to_row(instruction: Instruction, index: int, num_slots: int) -> tuple[int, ...]:
    if isinstance(instruction, GlobalBarrier):
        return Opcode.GLOBAL_BARRIER, 0, 0, 0, 0, index
    if isinstance(instruction, AllReduce):
        return Opcode.ALL_REDUCE, 0, instruction.stage, 0, 0, index
    if isinstance(instruction, OptimizerStep):
        return Opcode.OPTIMIZER_STEP, 0, instruction.stage, 0, 0, index
    if isinstance(instruction, Compute):
        opcode, operation, peer = Opcode.COMPUTE, instruction.operation, index
    elif isinstance(instruction, Receive):
        source = instruction.source
        opcode, operation, peer = Opcode.RECEIVE, instruction.message, source.pipeline * num_slots + source.slot
    else:
        target = instruction.target
        opcode, operation, peer = Opcode.SEND, instruction.message, target.pipeline * num_slots + target.slot
    return opcode, operation.kind, operation.stage, operation.pipeline, operation.microbatch, peer


def _require_known(programs: Programs, worker: Worker, program: Program) -> None:
    peers, weight = programs.live_pipelines(worker.slot), programs.gradient_weight
    for number, instruction in enumerate(program.instructions):
        where = f"worker {worker}, instruction {number} ({instruction})"
        if isinstance(instruction, Receive | Send | Compute):
            operation = instruction.operation if isinstance(instruction, Compute) else instruction.message
            if (
                operation.stage >= programs.num_stages
                or operation.pipeline >= programs.num_pipelines
                or operation.microbatch >= programs.microbatches[operation.pipeline]
            ):
                raise ScheduleFormatError(f"{where}: the job has no {operation}")
        if isinstance(instruction, Receive | Send):
            peer = instruction.source if isinstance(instruction, Receive) else instruction.target
            if peer == worker or peer.slot >= programs.num_slots or peer.pipeline >= programs.num_pipelines:
                raise ScheduleFormatError(f"{where}: {peer} is not another worker of the job")
        elif isinstance(instruction, AllReduce | OptimizerStep) and instruction.stage >= programs.num_stages:
            raise ScheduleFormatError(f"{where}: the job has stages 0..{programs.num_stages - 1}")
        if isinstance(instruction, AllReduce) and (instruction.pipelines, instruction.weight) != (peers, weight):
            raise ScheduleFormatError(f"{where}: expected {AllReduce(instruction.stage, peers, weight)}")

"""Whether this process can run a program at all: checked before anything of it is run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction

from replan_client.operation import Kind, Operation, Worker
from replan_client.program import AllReduce, Compute, OptimizerStep, Program, Receive, Send
from replan_client.torch.errors import ProgramMismatchError
from replan_client.torch.operands import message_made, message_taken


def require_runnable(
    program: Program, *, me: Worker, positions: Sequence[Worker], stages: Iterable[int], num_stages: int
) -> None:
    """Check that a program is for this worker, and that each instruction finds what it needs.

    Parameters
    ----------
    program
        The program.
    me
        Position of this worker.
    positions
        All live positions.
    stages
        Stages held here.
    num_stages
        Stages of the whole model.

    Raises
    ------
    ProgramMismatchError
        Naming the first instruction that cannot be run.
    """
    if program.worker != me:
        raise ProgramMismatchError(
            f"this is the program of worker {program.worker}, and this process stands at {me}",
            hint="ask for the program by this worker's name, in the epoch of these links",
        )
    _Walk(program, me, positions, frozenset(stages), num_stages).run()


class _Walk:
    """Runs a program without data: which messages are there, and how far each microbatch is."""

    def __init__(
        self, program: Program, me: Worker, positions: Sequence[Worker], stages: frozenset[int], num_stages: int
    ) -> None:
        self.program = program
        self.me = me
        self.others = frozenset(positions) - {me}
        self.peers = tuple(sorted(worker.pipeline for worker in positions if worker.slot == me.slot))
        self.stages = stages
        self.num_stages = num_stages
        self.there: set[Operation] = set()
        self.posted: set[Operation] = set()
        self.last: dict[tuple[int, int, int], Kind] = {}
        self.reduced: Counter[int] = Counter()
        self.stepped: Counter[int] = Counter()
        self.weights: set[Fraction] = set()

    def run(self) -> None:
        for number, instruction in enumerate(self.program.instructions):
            reason = self._take(instruction)
            if reason is not None:
                raise ProgramMismatchError(f"program of {self.me}, instruction {number}, {instruction}: {reason}")
        open_ends = [key for key, kind in self.last.items() if kind not in (Kind.W, Kind.B)]
        if open_ends:
            stage, pipeline, microbatch = open_ends[0]
            raise ProgramMismatchError(
                f"program of {self.me}: microbatch {pipeline}.{microbatch} has no W or B in stage {stage}"
            )
        if self.there:
            raise ProgramMismatchError(f"program of {self.me}: {min(self.there)} is received or made and never used")
        for stage in self.stages:
            if self.reduced[stage] != 1 or self.stepped[stage] != 1:
                raise ProgramMismatchError(
                    f"program of {self.me}: stage {stage} has {self.reduced[stage]} all-reduces and {self.stepped[stage]} "
                    "steps; expected one of each"
                )

    def _take(self, instruction: object) -> str | None:
        """Why an instruction cannot be run; ``None`` where it can, and it counts as run then."""
        if self.stepped and not isinstance(instruction, OptimizerStep):
            # An iteration that breaks behind a step could not be run again from where it began.
            return "it stands behind a step; expected all steps at the end"
        if isinstance(instruction, Compute):
            return self._compute(instruction.operation)
        if isinstance(instruction, Receive):
            return self._receive(instruction)
        if isinstance(instruction, Send):
            return self._send(instruction)
        if isinstance(instruction, AllReduce):
            return self._all_reduce(instruction)
        if isinstance(instruction, OptimizerStep):
            self.stepped[instruction.stage] += 1
            if instruction.stage not in self.stages:
                return self._not_held(instruction.stage)
            if not self.reduced[instruction.stage]:
                return "its gradients have not been summed"
        return None

    def _all_reduce(self, reduce: AllReduce) -> str | None:
        later = [stage for stage in self.reduced if stage > reduce.stage]
        self.reduced[reduce.stage] += 1
        self.weights.add(reduce.weight)
        if reduce.stage not in self.stages:
            return self._not_held(reduce.stage)
        if reduce.pipelines != self.peers:
            return f"live in slot {self.me.slot} are the pipelines {self.peers}"
        if later:
            return f"stage {later[0]} has been summed before it; expected stages to ascend, as peers sum them"
        if len(self.weights) > 1:
            return (
                f"another stage's gradients have the weight {min(self.weights - {reduce.weight})}; expected one weight"
            )
        return None

    def _receive(self, receive: Receive) -> str | None:
        message = receive.message
        if message.stage not in self.stages:
            return self._not_held(message.stage)
        if message_taken(message, self.num_stages) is None:
            return f"{message} takes no message"
        if receive.source not in self.others:
            return self._nobody(receive.source)
        if message in self.posted:
            return "it is received twice"
        self.posted.add(message)
        self.there.add(message)
        return None

    def _compute(self, operation: Operation) -> str | None:
        if operation.stage not in self.stages:
            return self._not_held(operation.stage)
        if self.reduced[operation.stage]:
            return f"the gradients of stage {operation.stage} have been summed before it"
        key = (operation.stage, operation.pipeline, operation.microbatch)
        before = self.last.get(key)
        expected = {Kind.F: None, Kind.I: Kind.F, Kind.B: Kind.F, Kind.W: Kind.I}[operation.kind]
        if before is not expected:
            wanted = "nothing" if expected is None else expected.name
            return f"it follows {wanted} of its microbatch, but {'nothing' if before is None else before.name} has run"
        message = message_taken(operation, self.num_stages)
        if message is not None:
            if message not in self.there:
                return f"{message} is neither received nor made here before"
            self.there.remove(message)
        self.last[key] = operation.kind
        made = message_made(operation, self.num_stages)
        if made is not None:
            self.there.add(made)
        return None

    def _send(self, send: Send) -> str | None:
        if send.target not in self.others:
            return self._nobody(send.target)
        if send.message not in self.there or send.message in self.posted:
            return "nothing has made it before"
        self.there.remove(send.message)
        return None

    def _not_held(self, stage: int) -> str:
        return f"stage {stage} is not held here; expected one of {sorted(self.stages)}"

    def _nobody(self, worker: Worker) -> str:
        return f"{worker} is this worker" if worker == self.me else f"{worker} is not one of the live workers"

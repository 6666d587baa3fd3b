"""Programs that a process cannot run are refused before anything of them is run."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from replan_client.operation import Kind, Worker, parse_operation
from replan_client.program import Compute, Program, Receive, Send, parse_program
from replan_client.torch.errors import ProgramMismatchError
from replan_client.torch.operands import message_made, message_taken
from replan_client.torch.program_check import require_runnable

from planner.job import Placement
from planner.problem import Optimizer
from tests.client.torch.planned import plan_job
from tests.client.torch.training import PlannedJob

POSITIONS = tuple(Worker(k, s) for k in range(2) for s in range(3))
MIDDLE = """\
0/1:
  RECV_F 1F0.0 from 0/0
  COMPUTE 1F0.0
  SEND_F 2F0.0 to 1/2
  RECV_I 1I0.0 from 1/2
  COMPUTE 1I0.0
  SEND_I 0I0.0 to 0/0
  COMPUTE 1W0.0
  ALL_REDUCE 1 pipelines 0-1 weight 1/2
  OPTIMIZER_STEP 1
"""


def _check(text: str) -> None:
    require_runnable(parse_program(text), me=Worker(0, 1), positions=POSITIONS, stages=(1,), num_stages=3)


def test_a_program_of_the_middle_passes() -> None:
    """With the backward in halves or whole, with a barrier too."""
    _check(MIDDLE)
    _check(MIDDLE.replace("COMPUTE 1I0.0", "COMPUTE 1B0.0").replace("  COMPUTE 1W0.0\n", ""))
    _check(MIDDLE.replace("  OPTIMIZER_STEP", "  GLOBAL_BARRIER\n  OPTIMIZER_STEP"))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("0/1:", "0/2:", "^this is the program of worker 0/2, and this process stands at 0/1"),
        ("COMPUTE 1F0.0", "COMPUTE 0F0.0", "instruction 1, COMPUTE 0F0.0: stage 0 is not held here; expected one of"),
        ("RECV_F 1F0.0 from 0/0", "RECV_F 2F0.0 from 0/0", "instruction 0, .*: stage 2 is not held here"),
        ("RECV_F 1F0.0 from 0/0", "RECV_F 1F0.0 from 2/0", "instruction 0, .*: 2/0 is not one of the live workers"),
        ("RECV_F 1F0.0 from 0/0", "RECV_F 1F0.0 from 0/1", "instruction 0, .*: 0/1 is this worker"),
        (
            "  RECV_F 1F0.0 from 0/0\n",
            "",
            "instruction 0, COMPUTE 1F0.0: 1F0.0 is neither received nor made here before",
        ),
        (
            "  RECV_I 1I0.0 from 1/2\n",
            "",
            "instruction 3, COMPUTE 1I0.0: 1I0.0 is neither received nor made here before",
        ),
        ("RECV_I 1I0.0 from 1/2", "RECV_F 1F0.0 from 0/0", "instruction 3, .*: it is received twice"),
        ("to 1/2", "to 1/3", "instruction 2, .*: 1/3 is not one of the live workers"),
        ("SEND_F 2F0.0", "SEND_F 2F0.1", "instruction 2, .*: nothing has made it before"),
        ("  COMPUTE 1F0.0\n", "", "instruction 1, SEND_F 2F0.0 to 1/2: nothing has made it before"),
        ("SEND_I 0I0.0 to 0/0", "SEND_F 1F0.0 to 0/0", "instruction 5, .*: nothing has made it before"),
        ("COMPUTE 1I0.0", "COMPUTE 1W0.0", "instruction 4, .*: it follows I of its microbatch, but F has run"),
        ("COMPUTE 1W0.0", "COMPUTE 1I0.0", "instruction 6, .*: it follows F of its microbatch, but I has run"),
        ("COMPUTE 1W0.0", "COMPUTE 1F0.0", "instruction 6, .*: it follows nothing of its microbatch, but I has run"),
        ("  COMPUTE 1W0.0\n", "", "microbatch 0.0 has no W or B in stage 1"),
        ("  SEND_I 0I0.0 to 0/0\n", "", "0I0.0 is received or made and never used"),
        ("pipelines 0-1", "pipelines 0", r"instruction 7, .*: live in slot 1 are the pipelines \(0, 1\)"),
        ("ALL_REDUCE 1", "ALL_REDUCE 2", "instruction 7, .*: stage 2 is not held here"),
        ("OPTIMIZER_STEP 1", "OPTIMIZER_STEP 0", "instruction 8, .*: stage 0 is not held here"),
        ("  ALL_REDUCE 1 pipelines 0-1 weight 1/2\n", "", "instruction 7, .*: its gradients have not been summed"),
        (
            "  COMPUTE 1W0.0\n  ALL_REDUCE 1 pipelines 0-1 weight 1/2\n",
            "  ALL_REDUCE 1 pipelines 0-1 weight 1/2\n  COMPUTE 1W0.0\n",
            "instruction 7, COMPUTE 1W0.0: the gradients of stage 1 have been summed before it",
        ),
        (
            "  OPTIMIZER_STEP 1\n",
            "  OPTIMIZER_STEP 1\n  GLOBAL_BARRIER\n",
            "instruction 9, GLOBAL_BARRIER: it stands behind a step; expected all steps at the end",
        ),
        ("  OPTIMIZER_STEP 1\n", "", "stage 1 has 1 all-reduces and 0 steps; expected one of each"),
        ("  OPTIMIZER_STEP 1\n", 2 * "  OPTIMIZER_STEP 1\n", "stage 1 has 1 all-reduces and 2 steps"),
    ],
)
def test_programs_that_cannot_be_run_are_refused(old: str, new: str, message: str) -> None:
    """The error names the first instruction that cannot be run, and what is wrong with it."""
    assert old in MIDDLE
    with pytest.raises(ProgramMismatchError, match=message):
        _check(MIDDLE.replace(old, new))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "ALL_REDUCE 0 pipelines 0-1 weight 1/2\n  OPTIMIZER_STEP 0\n  ALL_REDUCE 2 pipelines 0-1 weight 1/2\n",
            "instruction 2, .*: it stands behind a step",
        ),
        (
            "ALL_REDUCE 0 pipelines 0-1 weight 1/2\n  ALL_REDUCE 2 pipelines 0-1 weight 1/3\n",
            "instruction 1, .*: another stage's gradients have the weight 1/2; expected one weight",
        ),
        (
            "ALL_REDUCE 2 pipelines 0-1 weight 1/2\n  ALL_REDUCE 0 pipelines 0-1 weight 1/2\n",
            "instruction 1, .*: stage 2 has been summed before it; expected stages to ascend",
        ),
    ],
)
def test_stages_of_one_worker_are_summed_alike_and_before_any_steps(text: str, message: str) -> None:
    """A sum that breaks behind a step would leave one stage ahead, another order would mix up peers, two weights two batches."""
    with pytest.raises(ProgramMismatchError, match=message):
        require_runnable(
            parse_program(f"0/0:\n  {text}"), me=Worker(0, 0), positions=POSITIONS, stages=(0, 2), num_stages=3
        )


@pytest.mark.parametrize("text", ["RECV_F 0F0.0 from 1/1", "RECV_I 2I0.0 from 1/1"])
def test_the_ends_take_no_message(text: str) -> None:
    """The first stage's F and the last stage's backward have nobody to get a message from."""
    program = parse_program(f"0/0:\n  {text}\n")
    with pytest.raises(ProgramMismatchError, match="takes no message"):
        require_runnable(program, me=Worker(0, 0), positions=POSITIONS, stages=(0, 2), num_stages=3)


JOBS: list[Callable[[], PlannedJob]] = [
    lambda: plan_job(2, 3, 4, baseline=True),
    lambda: plan_job(2, 3, 4, dead=("1/1",), capacity=3),
    lambda: plan_job(2, 3, 4, placement=Placement.V, dead=("1/0",)),
    lambda: plan_job(3, 2, 3, placement=Placement.LOOP),
    lambda: plan_job(2, 3, 4, optimizer=Optimizer.GLOBAL, dead=("0/1", "1/2"), unsplittable=(1,)),
]


@pytest.mark.parametrize("build", JOBS)
def test_every_planned_program_passes_and_none_that_lacks_something(build: Callable[[], PlannedJob]) -> None:
    """What the planner lowers can be run. Without any one of its instructions but a barrier it cannot."""
    job = build()
    rng = random.Random(0)
    for worker in job.positions:
        program = job.program(worker)
        options = {
            "me": worker,
            "positions": job.positions,
            "stages": job.slot_stages[worker.slot],
            "num_stages": job.num_stages,
        }
        require_runnable(program, **options)  # type: ignore[arg-type]
        for number in rng.sample(range(len(program.instructions)), 8):
            left = (*program.instructions[:number], *program.instructions[number + 1 :])
            if str(program.instructions[number]) == "GLOBAL_BARRIER":
                continue
            with pytest.raises(ProgramMismatchError):
                require_runnable(Program(worker, left), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("operation", "taken", "made"),
    [
        ("0F1.2", None, "1F1.2"),
        ("1F1.2", "1F1.2", "2F1.2"),
        ("2F1.2", "2F1.2", None),
        ("2I1.2", None, "1I1.2"),
        ("1B1.2", "1I1.2", "0I1.2"),
        ("0I1.2", "0I1.2", None),
        ("1W1.2", None, None),
    ],
)
def test_operations_know_their_messages(operation: str, taken: str | None, made: str | None) -> None:
    """Messages are named by the operation that needs them, gradients by I."""
    found = parse_operation(operation)
    assert message_taken(found, 3) == (None if taken is None else parse_operation(taken))
    assert message_made(found, 3) == (None if made is None else parse_operation(made))


def test_operands_agree_with_planned_programs() -> None:
    """In a planned program each message sent was made by its worker, and each received is taken there."""
    job = plan_job(2, 3, 4, dead=("1/1",))
    for worker in job.positions:
        instructions = job.program(worker).instructions
        computed = [i.operation for i in instructions if isinstance(i, Compute)]
        made = {message_made(operation, job.num_stages) for operation in computed}
        taken = {message_taken(operation, job.num_stages) for operation in computed}
        assert {i.message for i in instructions if isinstance(i, Send)} <= made
        assert {i.message for i in instructions if isinstance(i, Receive)} <= taken
        assert all(operation.kind is not Kind.B for operation in computed)

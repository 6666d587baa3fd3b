"""Lowering to programs, their text, and the proof that they do not deadlock."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.deadlock import require_deadlock_free
from planner.errors import DeadlockError, InvalidScheduleError, NotFoundError, ScheduleFormatError
from planner.lowering import lower
from planner.operation import Kind, Worker
from planner.problem import Optimizer, Problem, Slot, Stage
from planner.program import (
    AllReduce,
    Compute,
    GlobalBarrier,
    Program,
    Receive,
    Send,
    parse_instruction,
    parse_program,
    program_from_dict,
)
from planner.programs import Programs, join_programs
from planner.schedule import parse_schedule
from planner.timing import time_schedule
from tests.problems import tiny_problem
from tests.random_orders import random_order

COST = Stage(forward_ns=2, input_grad_ns=3, weight_grad_ns=1, transfer_ns=1)
TWO = Problem(stages=(COST, COST), slots=(Slot(stages=(0,)), Slot(stages=(1,))), microbatches=(1,))
TIMED = "0/0: 0F0.0@0+2 0I0.0@9+3 0W0.0@12+1\n0/1: 1F0.0@3+2 1I0.0@5+3 1W0.0@8+1\n"

FIRST = """\
0/0:
  COMPUTE 0F0.0
  SEND_F 1F0.0 to 0/1
  RECV_I 0I0.0 from 0/1
  COMPUTE 0I0.0
  COMPUTE 0W0.0
  ALL_REDUCE 0 pipelines 0 weight 1/1
  OPTIMIZER_STEP 0
"""
SECOND = """\
0/1:
  RECV_F 1F0.0 from 0/0
  COMPUTE 1F0.0
  COMPUTE 1I0.0
  SEND_I 0I0.0 to 0/0
  COMPUTE 1W0.0
  ALL_REDUCE 1 pipelines 0 weight 1/1
  OPTIMIZER_STEP 1
"""


def _join(*texts: str, microbatches: tuple[int, ...] = (1,), num_stages: int = 2, num_slots: int = 2) -> Programs:
    return join_programs(
        [parse_program(text) for text in texts], num_slots=num_slots, num_stages=num_stages, microbatches=microbatches
    )


def _can_finish(programs: Sequence[Program], num_slots: int, rng: random.Random) -> bool:
    """Run programs one random step at a time: an independent reading of what instructions wait for."""
    at = {p.worker: 0 for p in programs}
    code = {p.worker: p.instructions for p in programs}
    received = {(p.worker, i.message) for p in programs for i in p.instructions if isinstance(i, Receive)}
    posted, sent, joined = set(), set(), set()
    moving = True
    while moving:
        moving = False
        for worker in rng.sample(sorted(at), len(at)):
            if at[worker] == len(code[worker]):
                continue
            step = code[worker][at[worker]]
            if isinstance(step, Receive):
                posted.add((worker, step.message))
            elif isinstance(step, Send):
                if (step.target, step.message) not in posted:
                    continue
                sent.add((step.target, step.message))
            elif isinstance(step, Compute):
                operation = step.operation
                message = replace(operation, kind=Kind.I) if operation.kind is Kind.B else operation
                if (worker, message) in received and (worker, message) not in sent:
                    continue
            elif isinstance(step, AllReduce | GlobalBarrier):
                joined.add((worker, step))
                group = [w for w in at if isinstance(step, GlobalBarrier) or w.slot == worker.slot]
                if not all((w, step) in joined for w in group):
                    moving = moving or False
                    continue
            at[worker] += 1
            moving = True
    return all(at[w] == len(code[w]) for w in at)


def test_programs_of_two_slots() -> None:
    """Receives are posted before the sender can be done, messages carry the name of what needs them."""
    programs = lower(TWO, parse_schedule(TIMED, 1, 2))
    assert programs.program(Worker(0, 0)).to_text() == FIRST
    assert programs.program(Worker(0, 1)).to_text() == SECOND
    require_deadlock_free(programs)


def test_orders_without_times_are_lowered_too() -> None:
    """Times of 0 throughout give programs that run."""
    order = "0/0: 0F0.0 0B0.0\n0/1: 1F0.0 1B0.0\n"
    programs = lower(TWO, parse_schedule(order, 1, 2))
    # The gradient is named by I although B takes it.
    assert "RECV_I 0I0.0 from 0/1" in programs.program(Worker(0, 0)).to_text()
    require_deadlock_free(programs)


def test_failures_and_uneven_counts_in_collectives() -> None:
    """Dead workers take no part and have no program; the weight is one over all microbatches."""
    problem = replace(TWO, microbatches=(1, 1, 0), dead=frozenset({Worker(1, 1)}), optimizer=Optimizer.GLOBAL)
    order = "0/0: 0F0.0 0I0.0 0W0.0\n0/1: 1F0.0 1I0.0 1W0.0\n1/0: 0F1.0 0I1.0 0W1.0\n2/1: 1F1.0 1I1.0 1W1.0\n"
    programs = lower(problem, parse_schedule(order, 3, 2))
    require_deadlock_free(programs)
    assert programs.program(Worker(0, 1)).instructions[-3:] == (
        AllReduce(1, (0, 2), Fraction(1, 2)),
        GlobalBarrier(),
        parse_instruction("OPTIMIZER_STEP 1"),
    )
    # Worker 2/0 runs nothing, and yet its gradients are summed and its parameters stepped.
    assert programs.program(Worker(2, 0)).to_text() == (
        "2/0:\n  ALL_REDUCE 0 pipelines 0-2 weight 1/2\n  GLOBAL_BARRIER\n  OPTIMIZER_STEP 0\n"
    )
    assert Worker(1, 1) not in set(programs.workers())
    with pytest.raises(NotFoundError, match="worker 1/1 is down"):
        programs.program(Worker(1, 1))
    with pytest.raises(NotFoundError, match="there is no worker 3/0"):
        programs.program(Worker(3, 0))


def test_no_message_stays_within_a_worker() -> None:
    """Two stages on one worker exchange nothing."""
    problem = Problem(stages=(COST, COST), slots=(Slot(stages=(0, 1)),), microbatches=(1,))
    programs = lower(problem, parse_schedule("0/0: 0F0.0 1F0.0 1I0.0 1W0.0 0I0.0 0W0.0", 1, 1))
    assert "SEND" not in programs.program(Worker(0, 0)).to_text()
    assert [str(i) for i in programs.program(Worker(0, 0)).instructions[-4:]] == [
        "ALL_REDUCE 0 pipelines 0 weight 1/1",
        "ALL_REDUCE 1 pipelines 0 weight 1/1",
        "OPTIMIZER_STEP 0",
        "OPTIMIZER_STEP 1",
    ]


def test_times_that_contradict_the_order_are_refused() -> None:
    """An operation planned to end before its input, or before the one ahead of it, is named."""
    with pytest.raises(InvalidScheduleError, match=r"1F0\.0 is planned to end at 1 ns, before its input ends"):
        lower(TWO, parse_schedule(TIMED.replace("1F0.0@3+2", "1F0.0@0+1"), 1, 2))
    one = Problem(stages=(COST,), slots=(Slot(stages=(0,)),), microbatches=(2,))
    text = "0/0: 0F0.0@2+2 0F0.1@0+2 0B0.0@4+4 0B0.1@8+4"
    with pytest.raises(
        InvalidScheduleError, match=r"0F0\.1 is planned to end at 2 ns, before the operation ahead of it"
    ):
        lower(one, parse_schedule(text, 1, 1))


def test_sends_that_wait_for_each_other_are_named() -> None:
    """0/0 sends a second activation before it posts the gradient, 0/1 sends the gradient before it posts the activation."""
    first = (
        "0/0:\n  COMPUTE 0F0.0\n  SEND_F 1F0.0 to 0/1\n  COMPUTE 0F0.1\n  SEND_F 1F0.1 to 0/1\n"
        "  RECV_I 0I0.0 from 0/1\n  COMPUTE 0I0.0\n  RECV_I 0I0.1 from 0/1\n  COMPUTE 0I0.1\n"
    )
    second = (
        "0/1:\n  RECV_F 1F0.0 from 0/0\n  COMPUTE 1F0.0\n  COMPUTE 1I0.0\n  SEND_I 0I0.0 to 0/0\n"
        "  RECV_F 1F0.1 from 0/0\n  COMPUTE 1F0.1\n  COMPUTE 1I0.1\n  SEND_I 0I0.1 to 0/0\n"
    )
    with pytest.raises(DeadlockError) as caught:
        require_deadlock_free(_join(first, second, microbatches=(2,)))
    assert str(caught.value) == (
        "programs wait for each other: worker 0/0 at SEND_F 1F0.1 to 0/1, which waits for "
        "worker 0/1 at SEND_I 0I0.0 to 0/0, which waits for worker 0/0"
    )
    # With the second receive posted one instruction earlier they run.
    second = second.replace(
        "  SEND_I 0I0.0 to 0/0\n  RECV_F 1F0.1 from 0/0\n", "  RECV_F 1F0.1 from 0/0\n  SEND_I 0I0.0 to 0/0\n"
    )
    require_deadlock_free(_join(first, second, microbatches=(2,)))


def test_receive_behind_its_computation_is_named() -> None:
    """A worker that computes before it posts the receive waits for a sender that waits for the receive."""
    second = SECOND.replace("  RECV_F 1F0.0 from 0/0\n  COMPUTE 1F0.0\n", "  COMPUTE 1F0.0\n  RECV_F 1F0.0 from 0/0\n")
    with pytest.raises(
        DeadlockError, match=r"0/0 at SEND_F 1F0\.0 to 0/1, which waits for worker 0/1 at COMPUTE 1F0\.0"
    ):
        require_deadlock_free(_join(FIRST, second))


def test_collectives_in_different_orders_are_named() -> None:
    """Two peers that reduce two stages in opposite orders wait for each other."""
    text = "{}/0:\n  ALL_REDUCE {} pipelines 0-1 weight 1/2\n  ALL_REDUCE {} pipelines 0-1 weight 1/2\n"
    with pytest.raises(DeadlockError, match=r"worker 0/0 at ALL_REDUCE 0 .* worker 1/0 at ALL_REDUCE 1 "):
        require_deadlock_free(_join(text.format(0, 0, 1), text.format(1, 1, 0), microbatches=(1, 1), num_slots=1))
    require_deadlock_free(_join(text.format(0, 0, 1), text.format(1, 0, 1), microbatches=(1, 1), num_slots=1))


def test_whoever_never_joins_a_collective_is_named() -> None:
    """A worker without the barrier or an all-reduce leaves the others waiting there for it, also if it runs nothing at all."""
    barrier = SECOND.replace("  OPTIMIZER_STEP 1\n", "  GLOBAL_BARRIER\n  OPTIMIZER_STEP 1\n")
    with pytest.raises(DeadlockError) as caught:
        require_deadlock_free(_join(FIRST, barrier))
    assert str(caught.value) == (
        "worker 0/1 waits at GLOBAL_BARRIER for worker 0/0, whose program ends without it"
    )  # fmt: skip
    reduce = "{}/0:\n  ALL_REDUCE 0 pipelines 0-1 weight 1/2\n"
    for absent in ("1/0:\n  OPTIMIZER_STEP 0\n", "1/0:\n"):
        with pytest.raises(DeadlockError, match=r"0/0 waits at ALL_REDUCE 0 .* for worker 1/0, whose program ends"):
            require_deadlock_free(_join(reduce.format(0), absent, microbatches=(1, 1), num_slots=1))


def test_a_collective_is_joined_once() -> None:
    """A worker that joins twice does not stand in for one that never does."""
    reduce = "  ALL_REDUCE 0 pipelines 0-1 weight 1/2\n"
    with pytest.raises(DeadlockError, match=r"worker 0/0 joins ALL_REDUCE 0 .* more than once"):
        require_deadlock_free(_join(f"0/0:\n{reduce}{reduce}", "1/0:\n", microbatches=(1, 1), num_slots=1))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (FIRST.replace("  RECV_I 0I0.0 from 0/1\n", ""), SECOND),
        (FIRST.replace("  SEND_F 1F0.0 to 0/1\n", ""), SECOND),
        (FIRST, SECOND.replace("RECV_F 1F0.0", "RECV_F 0F0.0")),
    ],
)
def test_unmatched_messages_are_refused(first: str, second: str) -> None:
    """Every send has its receive and the other way round."""
    with pytest.raises(DeadlockError, match="do not match in order"):
        require_deadlock_free(_join(first, second))


@pytest.mark.parametrize(
    ("first", "second", "where"),
    [
        (
            FIRST.replace("  SEND_F 1F0.0 to 0/1\n", ""),
            SECOND.replace("  RECV_F 1F0.0 from 0/0\n", ""),
            "0/1 at COMPUTE 1F",
        ),
        (
            FIRST.replace("  RECV_I 0I0.0 from 0/1\n", ""),
            SECOND.replace("  SEND_I 0I0.0 to 0/0\n", ""),
            "0/0 at COMPUTE 0I",
        ),
        (FIRST.replace("  COMPUTE 0F0.0\n", ""), SECOND, "0/0 at SEND_F 1F"),
        (FIRST, SECOND.replace("  COMPUTE 1I0.0\n", ""), "0/1 at SEND_I 0I"),
        (FIRST.replace("  COMPUTE 0I0.0\n", ""), SECOND, "0/0 at COMPUTE 0W"),
        (FIRST, SECOND.replace("F0.0\n  COMPUTE 1I0.0\n", "I0.0\n  COMPUTE 1F0.0\n"), "0/1 at COMPUTE 1I"),
    ],
)
def test_results_must_exist_before_use(first: str, second: str, where: str) -> None:
    """What is computed on or sent was computed earlier on the worker, or is received there."""
    with pytest.raises(DeadlockError, match=f"worker {where}0.0 .*neither computed before nor receives"):
        require_deadlock_free(_join(first, second))


@pytest.mark.parametrize(
    "text",
    [
        "RECV_F 3F1.2 from 1/2",
        "RECV_I 3I1.2 from 1/4",
        "COMPUTE 3W1.2",
        "COMPUTE 3B1.2",
        "SEND_F 4F1.2 to 1/4",
        "SEND_I 2I1.2 to 1/2",
        "ALL_REDUCE 3 pipelines 0,2-5,7-8 weight 1/18",
        "GLOBAL_BARRIER",
        "OPTIMIZER_STEP 3",
    ],
)
def test_instructions_read_as_they_are_written(text: str) -> None:
    """Text becomes an instruction and the same text again."""
    assert str(parse_instruction(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "COMPUTE",
        "COMPUTE 3X1.2",
        "COMPUTE  3F1.2",
        "RECV_F 3I1.2 from 1/2",
        "RECV_F 3F1.2 to 1/2",
        "SEND_W 3W1.2 to 1/2",
        "ALL_REDUCE 3 pipelines 2,0 weight 1/18",
        "ALL_REDUCE 3 pipelines 0,1 weight 1/18",
        "ALL_REDUCE 3 pipelines 0-99999999 weight 1/18",
        "ALL_REDUCE 3 pipelines 0 weight 2/18",
        "GLOBAL_BARRIER ",
        "OPTIMIZER_STEP 03",
    ],
)
def test_malformed_instructions_are_refused(text: str) -> None:
    """Anything but the exact form is an error."""
    with pytest.raises(ScheduleFormatError):
        parse_instruction(text)


def test_program_errors_name_the_line() -> None:
    """The line and the instruction that cannot be read stand in the message."""
    with pytest.raises(ScheduleFormatError, match="line 3"):
        parse_program("0/0:\n  COMPUTE 0F0.0\n  COMPUTE zero\n")
    with pytest.raises(ScheduleFormatError, match="ends in a newline"):
        parse_program("0/0:\n  COMPUTE 0F0.0")
    with pytest.raises(ScheduleFormatError, match="instruction 0"):
        program_from_dict({"worker": "0/0", "instructions": ["COMPUTE zero"]})
    with pytest.raises(ScheduleFormatError, match="keys"):
        program_from_dict({"worker": "0/0"})


@pytest.mark.parametrize(
    "texts",
    [
        (FIRST, FIRST),
        (FIRST, SECOND.replace("0/1:", "0/2:")),
        (FIRST.replace("COMPUTE 0W0.0", "COMPUTE 0W0.1"), SECOND),
        (FIRST.replace("to 0/1", "to 0/0"), SECOND),
        (FIRST.replace("STEP 0", "STEP 2"), SECOND),
        (FIRST.replace("weight 1/1", "weight 1/2"), SECOND),
    ],
)
def test_programs_that_do_not_fit_the_job_are_refused(texts: tuple[str, str]) -> None:
    """Repeated and unknown workers, operations, peers, stages and weights cannot be joined."""
    with pytest.raises(ScheduleFormatError):
        _join(*texts)


def _random_programs(seed: int) -> tuple[Problem, list[Program], random.Random]:
    rng = random.Random(seed)
    problem = tiny_problem(rng)
    order = random_order(problem, rng)
    programs = lower(problem, time_schedule(problem, order)[0] if rng.random() < 0.7 else order)
    require_deadlock_free(programs)
    return problem, [programs.program(worker) for worker in programs.workers()], rng


def _rejoin(problem: Problem, programs: Sequence[Program]) -> Programs:
    return join_programs(
        programs, num_slots=problem.num_slots, num_stages=problem.num_stages, microbatches=problem.microbatches
    )


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_programs_of_any_order_run_to_their_end(seed: int) -> None:
    """Random orders lower to programs that finish, computing each worker's operations in its order, and read back."""
    problem, programs, rng = _random_programs(seed)
    assert _can_finish(programs, problem.num_slots, rng)
    assert [parse_program(p.to_text()) for p in programs] == programs
    assert [program_from_dict(p.to_dict()) for p in programs] == programs
    joined = _rejoin(problem, programs)
    assert joined.dead == problem.dead
    assert [joined.program(p.worker) for p in programs] == programs


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_shuffled_programs_are_judged_rightly(seed: int) -> None:
    """After a few instructions have moved, the proof agrees with a run by random steps; wrong orders and inputs aside."""
    problem, programs, rng = _random_programs(seed)
    for _ in range(rng.randint(1, 3)):
        which = rng.randrange(len(programs))
        instructions = list(programs[which].instructions)
        moved = instructions.pop(rng.randrange(len(instructions)))
        instructions.insert(rng.randint(0, len(instructions)), moved)
        programs[which] = Program(programs[which].worker, tuple(instructions))
    finishes = _can_finish(programs, problem.num_slots, rng)
    try:
        require_deadlock_free(_rejoin(problem, programs))
    except DeadlockError as error:
        others = ("do not match in order", "neither computed before nor receives")
        assert not finishes or any(other in error.message for other in others)
    else:
        assert finishes

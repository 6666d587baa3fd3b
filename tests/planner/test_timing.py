"""Steady periods and shifted times by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from planner.errors import InvalidScheduleError
from planner.operation import Worker
from planner.problem import Optimizer, Problem, Slot, Stage
from planner.schedule import parse_schedule
from planner.timing import durations_ns, time_schedule

COST = Stage(forward_ns=2, input_grad_ns=3, weight_grad_ns=1, transfer_ns=1)
TWO = Problem(stages=(COST, COST), slots=(Slot(stages=(0,)), Slot(stages=(1,))), microbatches=(1,))
ORDER = "0/0: 0F0.0 0I0.0 0W0.0\n0/1: 1F0.0 1I0.0 1W0.0\n"


def test_one_microbatch_through_two_slots() -> None:
    """F, transfer, F, I, transfer, I and W follow each other: 2 + 1 + 2 + 3 + 1 + 3 + 1 = 13."""
    timed, period_ns = time_schedule(TWO, parse_schedule(ORDER, 1, 2))
    assert period_ns == 13
    assert timed.to_text(times=True) == ("0/0: 0F0.0@0+2 0I0.0@9+3 0W0.0@12+1\n0/1: 1F0.0@3+2 1I0.0@5+3 1W0.0@8+1\n")


def test_times_given_are_ignored() -> None:
    """Only the order counts."""
    absurd = parse_schedule(ORDER.replace("0W0.0", "0W0.0@700+1"), 1, 2)
    assert time_schedule(TWO, absurd) == time_schedule(TWO, parse_schedule(ORDER, 1, 2))


def test_slot_that_waits_starts_later() -> None:
    """As early as possible slot 1 runs from 1 (1F1.0) to 12 (the six W that 0/1 puts off to the end): 11 ns.

    But 1/1 may start later: no worker is busy for more than 6 ns, and the cycle from slot 0 to slot 1 and back takes 12 + 0 in
    two iterations.
    """
    stages = (
        Stage(forward_ns=1, input_grad_ns=0, weight_grad_ns=0),
        Stage(forward_ns=0, input_grad_ns=0, weight_grad_ns=1),
    )
    problem = Problem(stages=stages, slots=(Slot(stages=(0,)), Slot(stages=(1,))), microbatches=(6, 1))
    lines = [
        ("0/0", [f"0F0.{j}" for j in range(6)] + [f"0B0.{j}" for j in range(6)]),
        ("0/1", [f"1{kind}0.{j}" for j in range(6) for kind in "FI"] + [f"1W0.{j}" for j in range(6)]),
        ("1/0", ["0F1.0", "0B1.0"]),
        ("1/1", ["1F1.0", "1I1.0", "1W1.0"]),
    ]
    order = "".join(f"{worker}: {' '.join(words)}\n" for worker, words in lines)
    timed, period_ns = time_schedule(problem, parse_schedule(order, 2, 2))
    assert period_ns == 6
    slot_1 = [*timed.rows(Worker(0, 1)), *timed.rows(Worker(1, 1))]
    assert int(timed.end_ns[slot_1].max() - timed.start_ns[slot_1].min()) == 6


def test_sync_by_optimizer() -> None:
    """Staggered slots wait for their own sync, global ones for the slowest."""
    slots = (Slot(stages=(0,), sync_ns=1), Slot(stages=(1,), sync_ns=8))
    # Slot 0: 13 + 1 and slot 1: 6 + 8; all together 13 + 8.
    assert time_schedule(replace(TWO, slots=slots), parse_schedule(ORDER, 1, 2))[1] == 14
    together = replace(TWO, slots=slots, optimizer=Optimizer.GLOBAL)
    assert time_schedule(together, parse_schedule(ORDER, 1, 2))[1] == 21


def test_period_is_rounded_up() -> None:
    """From slot 0 to 1 take 4 ns, back 1, within either 2: the period is 5/2, so 3 (see the test of replay)."""
    stages = (
        Stage(forward_ns=1, input_grad_ns=0, weight_grad_ns=0),
        Stage(forward_ns=0, input_grad_ns=0, weight_grad_ns=1),
    )
    problem = Problem(stages=stages, slots=(Slot(stages=(0,)), Slot(stages=(1,))), microbatches=(2, 2))
    order = (
        "0/0: 0F0.0 0F0.1 0I0.0 0W0.0 0I0.1 0W0.1\n0/1: 1F0.0 1I0.0 1F0.1 1I0.1 1W0.0 1W0.1\n"
        "1/0: 0F1.0 0I1.0 0F1.1 0I1.1 0W1.0 0W1.1\n1/1: 1F1.0 1I1.0 1W1.0 1F1.1 1I1.1 1W1.1\n"
    )
    assert time_schedule(problem, parse_schedule(order, 2, 2))[1] == 3


def test_messages_arrive_in_send_order() -> None:
    """0F0.1 is sent at 10 over 5 ns, so the gradient of 2I0.0, sent at 11 over 1 ns, arrives at 15 as well."""
    cost = Stage(forward_ns=1, input_grad_ns=1, weight_grad_ns=1)
    problem = Problem(
        stages=(replace(cost, transfer_ns=5), replace(cost, transfer_ns=1), cost),
        slots=(Slot(stages=(0, 2)), Slot(stages=(1,))),
        microbatches=(2,),
    )
    order = (
        "0/0: 0F0.0 2F0.0 0F0.1 2I0.0 2W0.0 2F0.1 2I0.1 2W0.1 0I0.0 0W0.0 0I0.1 0W0.1\n"
        "0/1: 1F0.0 1I0.0 1W0.0 1F0.1 1I0.1 1W0.1\n"
    )
    timed, _ = time_schedule(problem, parse_schedule(order, 1, 2))
    start = {str(t.operation): t.start_ns for t in timed.operations(Worker(0, 1))}
    assert (start["1F0.0"], start["1I0.0"], start["1F0.1"]) == (6, 15, 17)


def test_degraded_workers_round_each_part_up() -> None:
    """At 0.3 of full speed F, I and W of 2, 3 and 1 ns become 7, 10 and 4, and B is I and W together: 14."""
    problem = replace(TWO, speeds_ppm={Worker(0, 0): 300_000})
    schedule = parse_schedule("0/0: 0F0.0 0B0.0\n0/1: 1F0.0 1I0.0 1W0.0\n", 1, 2)
    assert durations_ns(problem, schedule).tolist() == [7, 14, 2, 3, 1]


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (ORDER.replace("0I0.0 0W0.0", "0W0.0 0I0.0"), "0W0.0 stands before 0I0.0"),
        (ORDER.replace("1F0.0 1I0.0", "1I0.0 1F0.0"), "1I0.0 stands before 1F0.0"),
        (ORDER.replace("0F0.0 0I0.0", "0I0.0 0F0.0"), "waits for itself"),
        (ORDER.replace(" 1W0.0", ""), "1 weight gradients"),
        (ORDER.replace("1I0.0 ", ""), "1 forwards or backwards"),
        (ORDER.replace("1F0.0", "2F0.0"), "2F0.0 does not exist"),
        (ORDER.replace("1F0.0", "0F0.0"), "0F0.0 stands more than once"),
    ],
)
def test_orders_that_cannot_run_are_refused(order: str, message: str) -> None:
    """Cycles, and operations that are missing, repeated or unknown, are named."""
    with pytest.raises(InvalidScheduleError, match=message):
        time_schedule(TWO, parse_schedule(order, 1, 2))


def test_long_operations_of_a_slow_worker_stay_exact() -> None:
    """A forward of 1e13 ns (2.8 h) at half speed takes 2e13: the product with a million exceeds 64 bits on the way."""
    problem = Problem(
        stages=(Stage(forward_ns=10**13, input_grad_ns=1, weight_grad_ns=1),),
        slots=(Slot(stages=(0,)),),
        microbatches=(1,),
        speeds_ppm={Worker(0, 0): 500_000},
    )
    assert time_schedule(problem, parse_schedule("0/0: 0F0.0 0I0.0 0W0.0", 1, 1))[1] == 2 * 10**13 + 4

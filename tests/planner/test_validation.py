"""Every constraint by a schedule that keeps it and one that breaks it.

Most cases are one microbatch through two slots, F 2 ns, I 3 ns, W 1 ns, transfer 1 ns::

    0/0  F0 0..2                                    I0 9..12  W0 12..13
    0/1           F1 3..5   I1 5..8   W1 8..9

Slot 0 runs from 0 to 13, slot 1 from 3 to 9, so the period is 13.
"""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InvalidScheduleError, ProblemError
from planner.operation import Worker, parse_operation
from planner.problem import Optimizer, Problem, Slot, Stage
from planner.schedule import Schedule, parse_schedule
from planner.timing import time_schedule
from planner.validation import Violation, require_sound, require_valid, validate
from tests.problems import tiny_problem
from tests.random_orders import random_order

COST = Stage(forward_ns=2, input_grad_ns=3, weight_grad_ns=1, transfer_ns=1, activation_bytes=2, weight_grad_bytes=1)
FUSED = replace(COST, splittable=False)
TWO = Problem(stages=(COST, COST), slots=(Slot(stages=(0,)), Slot(stages=(1,))), microbatches=(1,))
PEERS = replace(TWO, microbatches=(1, 0))
FIRST = "0/0: 0F0.0@0+2 0I0.0@9+3 0W0.0@12+1\n"
SECOND = "0/1: 1F0.0@3+2 1I0.0@5+3 1W0.0@8+1\n"

ONE = Problem(stages=(COST,), slots=(Slot(stages=(0,)),), microbatches=(2,))
BOTH_AHEAD = "0/0: 0F0.0@0+2 0F0.1@2+2 0I0.0@4+3 0W0.0@7+1 0I0.1@8+3 0W0.1@11+1\n"

# Messages 0F -> 1F and 2I -> 1I share the link 0/0 -> 0/1, and the first takes 5 ns, the second 1 ns.
LOOP_COST = Stage(forward_ns=1, input_grad_ns=1, weight_grad_ns=1)
LOOP = Problem(
    stages=(replace(LOOP_COST, transfer_ns=5), replace(LOOP_COST, transfer_ns=1), LOOP_COST),
    slots=(Slot(stages=(0, 2)), Slot(stages=(1,))),
    microbatches=(2,),
)
# Nothing takes time, so all may be planned for one moment, in whatever order.
MOMENT_COST = Stage(forward_ns=0, input_grad_ns=0, weight_grad_ns=0)
MOMENT = replace(TWO, stages=(MOMENT_COST, MOMENT_COST), microbatches=(2,))
MOMENT_FIRST = "0/0: 0F0.0@0+0 0F0.1@0+0 0I0.0@0+0 0W0.0@0+0 0I0.1@0+0 0W0.1@0+0\n"
MOMENT_SECOND = "0/1: 1F0.0@0+0 1F0.1@0+0 1I0.0@0+0 1W0.0@0+0 1I0.1@0+0 1W0.1@0+0\n"

FEASIBLE = {
    "all in one moment": (MOMENT, MOMENT_FIRST + MOMENT_SECOND, 0),
    "split": (TWO, FIRST + SECOND, 13),
    "later than needed": (TWO, FIRST.replace("0W0.0@12", "0W0.0@20") + SECOND, 21),
    # B of stage 1 ends at 9, so its gradient arrives at 10.
    "fused": (TWO, "0/0: 0F0.0@0+2 0B0.0@10+4\n0/1: 1F0.0@3+2 1B0.0@5+4\n", 14),
    "must be fused": (
        replace(TWO, stages=(FUSED, FUSED)),
        "0/0: 0F0.0@0+2 0B0.0@10+4\n0/1: 1F0.0@3+2 1B0.0@5+4\n",
        14,
    ),
    "rerouted": (PEERS, FIRST + SECOND.replace("0/1", "1/1"), 13),
    "rerouted around the dead": (
        replace(PEERS, dead=frozenset({Worker(0, 1)})),
        FIRST + SECOND.replace("0/1", "1/1"),
        13,
    ),
    # Half the speed doubles every duration on 0/0.
    "degraded": (
        replace(TWO, speeds_ppm={Worker(0, 0): 500_000}),
        "0/0: 0F0.0@0+4 0I0.0@11+6 0W0.0@17+2\n0/1: 1F0.0@5+2 1I0.0@7+3 1W0.0@10+1\n",
        19,
    ),
    "two microbatches": (ONE, BOTH_AHEAD, 12),
    # Two F hold 2 + 2 bytes.
    "memory for two": (replace(ONE, slots=(Slot(stages=(0,), capacity_bytes=4),)), BOTH_AHEAD, 12),
    # The second F comes after the first I: 1 + 2 bytes.
    "memory for one and a rest": (
        replace(ONE, slots=(Slot(stages=(0,), capacity_bytes=3),)),
        "0/0: 0F0.0@0+2 0I0.0@2+3 0F0.1@5+2 0W0.0@7+1 0I0.1@8+3 0W0.1@11+1\n",
        12,
    ),
    # 1F0.1 is sent at 10 and arrives at 15; 2I0.0 ends at 11, yet its gradient arrives no earlier.
    "messages in send order": (
        LOOP,
        "0/0: 0F0.0@0+1 2F0.0@8+1 0F0.1@9+1 2I0.0@10+1 2W0.0@11+1 2F0.1@17+1 2I0.1@18+1 2W0.1@19+1 "
        "0I0.0@22+1 0W0.0@23+1 0I0.1@26+1 0W0.1@27+1\n"
        "0/1: 1F0.0@6+1 1F0.1@15+1 1I0.0@16+1 1W0.0@17+1 1I0.1@20+1 1W0.1@21+1\n",
        28,
    ),
    # Slot 0: 13 + 1; slot 1: 6 + 4.
    "staggered sync": (
        replace(TWO, slots=(Slot(stages=(0,), sync_ns=1), Slot(stages=(1,), sync_ns=4))),
        FIRST + SECOND,
        14,
    ),
    # All of it takes 13, the slowest sync 4.
    "global sync": (
        replace(TWO, slots=(Slot(stages=(0,), sync_ns=1), Slot(stages=(1,), sync_ns=4)), optimizer=Optimizer.GLOBAL),
        FIRST + SECOND,
        17,
    ),
    "negative times": (ONE, BOTH_AHEAD.replace("0F0.0@0", "0F0.0@-5"), 17),
}

INFEASIBLE = {
    "no W": (TWO, "0/0: 0F0.0@0+2 0I0.0@9+3\n" + SECOND, 13, ["missing_operation"]),
    "no I": (TWO, "0/0: 0F0.0@0+2 0W0.0@12+1\n" + SECOND, 13, ["missing_operation"]),
    "no F": (TWO, FIRST + "0/1: 1I0.0@5+3 1W0.0@8+1\n", 13, ["missing_operation"]),
    "no backward": (TWO, "0/0: 0F0.0@0+2\n" + SECOND, 13, ["missing_operation"]),
    "nothing at all": (TWO, "", 13, ["missing_operation"] * 4),
    "W twice": (TWO, FIRST[:-1] + " 0W0.0@13+1\n" + SECOND, 14, ["duplicate_operation"]),
    "I, W and B": (TWO, FIRST[:-1] + " 0B0.0@13+4\n" + SECOND, 17, ["mixed_backward"] * 2),
    "split where it cannot": (replace(TWO, stages=(FUSED, COST)), FIRST + SECOND, 13, ["unsplittable"] * 2),
    # One worker runs all: no transfers.
    "other slot": (
        TWO,
        "0/0: 0F0.0@0+2 1F0.0@2+2 1I0.0@4+3 1W0.0@7+1 0I0.0@8+3 0W0.0@11+1\n",
        12,
        ["wrong_slot"] * 3,
    ),
    "W on a peer": (
        PEERS,
        FIRST + "0/1: 1F0.0@3+2 1I0.0@5+3\n1/1: 1W0.0@8+1\n",
        13,
        ["worker_changed"],
    ),
    "on a dead worker": (
        replace(PEERS, dead=frozenset({Worker(0, 1)})),
        FIRST + SECOND,
        13,
        ["dead_worker"] * 3,
    ),
    "unknown stage": (TWO, FIRST[:-1] + " 2F0.0@13+0\n" + SECOND, 13, ["unknown_operation"]),
    "unknown microbatch": (TWO, FIRST[:-1] + " 0F0.1@13+0\n" + SECOND, 13, ["unknown_operation"]),
    "unknown pipeline": (TWO, FIRST[:-1] + " 0F1.0@13+0\n" + SECOND, 13, ["unknown_operation"]),
    "too long": (TWO, FIRST.replace("12+1", "12+2") + SECOND, 14, ["wrong_duration"]),
    "full speed on a degraded worker": (
        replace(TWO, speeds_ppm={Worker(0, 1): 500_000}),
        FIRST + SECOND,
        13,
        ["wrong_duration"] * 3,
    ),
    "two at a time": (ONE, BOTH_AHEAD.replace("0F0.1@2", "0F0.1@1"), 12, ["overlap"]),
    "F before its activation": (TWO, FIRST + SECOND.replace("1F0.0@3", "1F0.0@2"), 13, ["precedence"]),
    "I before its gradient": (TWO, "0/0: 0F0.0@0+2 0I0.0@8+3 0W0.0@11+1\n" + SECOND, 13, ["precedence"]),
    # B of stage 1 ends at 9, and its gradient arrives at 10.
    "I before the whole of B": (TWO, FIRST + "0/1: 1F0.0@3+2 1B0.0@5+4\n", 13, ["precedence"]),
    "W ahead of I": (TWO, "0/0: 0F0.0@0+2 0W0.0@8+1 0I0.0@9+3\n" + SECOND, 13, ["precedence"]),
    # 1I0.0 starts at 12, when its own message would be there, but 1F0.1's was sent before and arrives at 15.
    "message overtakes": (
        LOOP,
        "0/0: 0F0.0@0+1 2F0.0@8+1 0F0.1@9+1 2I0.0@10+1 2W0.0@11+1 2F0.1@18+1 2I0.1@19+1 2W0.1@20+1 "
        "0I0.0@22+1 0W0.0@23+1 0I0.1@27+1 0W0.1@28+1\n"
        "0/1: 1F0.0@6+1 1I0.0@12+1 1W0.0@13+1 1F0.1@15+1 1I0.1@21+1 1W0.1@22+1\n",
        29,
        ["link_order"],
    ),
    "one byte short": (replace(ONE, slots=(Slot(stages=(0,), capacity_bytes=3),)), BOTH_AHEAD, 12, ["memory"]),
    "W kept too long": (
        replace(ONE, slots=(Slot(stages=(0,), capacity_bytes=2),)),
        "0/0: 0F0.0@0+2 0I0.0@2+3 0F0.1@5+2 0W0.0@7+1 0I0.1@8+3 0W0.1@11+1\n",
        12,
        ["memory"],
    ),
    # 0/0 runs 0F0.1 after 0I0.0, which needs 1I0.0, which 0/1 runs after 1F0.1, which needs 0F0.1.
    "workers wait for each other": (
        MOMENT,
        MOMENT_FIRST.replace("0F0.1@0+0 0I0.0@0+0", "0I0.0@0+0 0F0.1@0+0") + MOMENT_SECOND,
        0,
        ["cycle"] * 2,
    ),
    "worker waits for itself": (
        MOMENT,
        MOMENT_FIRST.replace("0I0.0@0+0 0W0.0@0+0", "0W0.0@0+0 0I0.0@0+0") + MOMENT_SECOND,
        0,
        ["cycle"],
    ),
    "period too short": (TWO, FIRST + SECOND, 12, ["period"]),
    "sync does not fit": (
        replace(TWO, slots=(Slot(stages=(0,), sync_ns=1), Slot(stages=(1,), sync_ns=4))),
        FIRST + SECOND,
        13,
        ["period"],
    ),
    "global sync does not fit": (
        replace(TWO, slots=(Slot(stages=(0,), sync_ns=1), Slot(stages=(1,), sync_ns=4)), optimizer=Optimizer.GLOBAL),
        FIRST + SECOND,
        16,
        ["period"],
    ),
}


def _parse(problem: Problem, text: str) -> Schedule:
    return parse_schedule(text, problem.num_pipelines, problem.num_slots)


@pytest.mark.parametrize("name", FEASIBLE)
def test_feasible_schedules_have_no_violation(name: str) -> None:
    """A schedule that keeps every constraint passes, whether or not it is as early as possible."""
    problem, text, period_ns = FEASIBLE[name]
    assert validate(problem, _parse(problem, text), period_ns) == ()
    require_valid(problem, _parse(problem, text), period_ns)


@pytest.mark.parametrize("name", INFEASIBLE)
def test_infeasible_schedules_are_named_by_their_constraint(name: str) -> None:
    """A schedule that breaks one constraint is reported with that constraint's code and no other."""
    problem, text, period_ns, codes = INFEASIBLE[name]
    assert [v.code for v in validate(problem, _parse(problem, text), period_ns)] == codes
    with pytest.raises(InvalidScheduleError):
        require_valid(problem, _parse(problem, text), period_ns)


@pytest.mark.parametrize(
    "name",
    [
        "split",
        "fused",
        "rerouted",
        "degraded",
        "two microbatches",
        "messages in send order",
        "staggered sync",
        "global sync",
    ],
)
def test_feasible_periods_are_tight(name: str) -> None:
    """One nanosecond less than the window and its sync is too short."""
    problem, text, period_ns = FEASIBLE[name]
    assert {v.code for v in validate(problem, _parse(problem, text), period_ns - 1)} == {"period"}


def test_violation_names_its_place() -> None:
    """Worker, operation, time, what was found and what was expected stand in the violation."""
    text = FIRST + SECOND.replace("1F0.0@3", "1F0.0@2")
    (violation,) = validate(TWO, _parse(TWO, text), 13)
    assert (violation.worker, violation.operation, violation.time_ns) == (Worker(0, 1), parse_operation("1F0.0"), 2)
    assert str(violation) == (
        "precedence: worker 0/1, 1F0.0 at 2 ns: its input 0F0.0 ends on worker 0/0 at 2 ns and takes 1 ns to get here; "
        "expected a start at 3 ns or later"
    )


def test_missing_operations_name_the_microbatch() -> None:
    """What is missing has no worker and no time, but a name."""
    problem = replace(TWO, microbatches=(0, 1))
    text = "0/0: 0F1.0@0+2 0I1.0@9+3 0W1.0@12+1\n0/1: 1I1.0@5+3 1W1.0@8+1\n"
    (violation,) = validate(problem, _parse(problem, text), 13)
    assert violation == Violation(
        "missing_operation",
        None,
        parse_operation("1F1.0"),
        None,
        "stage 1: microbatch 1.0 has no F here; 1F1.0 is missing",
    )


def test_grid_of_another_size_is_all_that_is_said() -> None:
    """A schedule for other numbers of workers is not looked at further."""
    assert [v.code for v in validate(TWO, parse_schedule(FIRST + SECOND, 1, 3), 13)] == ["wrong_grid"]


def test_absurd_times_are_refused_before_sums_wrap() -> None:
    """Times beyond 2**61 are reported, and no other check of times runs."""
    schedule = _parse(TWO, FIRST + SECOND)
    end_ns = schedule.end_ns.copy()
    end_ns[0] = np.iinfo(np.int64).max
    assert [v.code for v in validate(TWO, replace(schedule, end_ns=end_ns), 13)] == ["time_range"]


def test_costs_beyond_64_bits_are_refused() -> None:
    """Durations whose sum might wrap around are a fault of the problem."""
    huge = replace(TWO, stages=(replace(COST, forward_ns=2**60), COST))
    with pytest.raises(ProblemError, match="add up to"):
        validate(huge, _parse(TWO, FIRST + SECOND), 13)
    heavy = replace(TWO, stages=(replace(COST, activation_bytes=2**61), COST))
    with pytest.raises(ProblemError, match="bytes of activations"):
        validate(heavy, _parse(TWO, FIRST + SECOND), 13)


def test_list_of_violations_is_cut() -> None:
    """Beyond the limit violations are counted, not listed."""
    problem, text, period_ns, _ = INFEASIBLE["other slot"]
    found = validate(problem, _parse(problem, text), period_ns, limit=1)
    assert [v.code for v in found] == ["wrong_slot", "truncated"]
    assert found[-1].message == "2 more violations are not listed; the first 1 are"


def test_refusal_draws_the_neighbourhood() -> None:
    """The error shows the grid with the first violation's operation marked."""
    text = FIRST + SECOND.replace("1F0.0@3", "1F0.0@2")
    with pytest.raises(InvalidScheduleError) as caught:
        require_valid(TWO, _parse(TWO, text), 13)
    lines = str(caught.value).splitlines()
    assert lines[0] == "the schedule breaks its problem's constraints in 1 places:"
    marked = next(i for i, line in enumerate(lines) if "^" in line)
    assert lines[marked - 1].startswith("0/1")
    assert lines[marked].index("^") == lines[marked - 1].index("F")


def test_soundness_ignores_times() -> None:
    """Without times a complete order is sound, an incomplete one is not."""
    require_sound(TWO, _parse(TWO, "0/0: 0F0.0 0I0.0 0W0.0\n0/1: 1F0.0 1I0.0 1W0.0\n"))
    with pytest.raises(InvalidScheduleError, match="missing_operation"):
        require_sound(TWO, _parse(TWO, "0/0: 0F0.0 0I0.0\n0/1: 1F0.0 1I0.0 1W0.0\n"))


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_one_changed_entry_never_passes_unseen(seed: int) -> None:
    """Timed random orders pass; each with one operation planned a nanosecond longer, renamed or taken away does not."""
    rng = random.Random(seed)
    problem = tiny_problem(rng)
    roomy = replace(problem, slots=tuple(replace(slot, capacity_bytes=None) for slot in problem.slots))
    schedule, period_ns = time_schedule(roomy, random_order(roomy, rng))
    assert validate(roomy, schedule, period_ns) == ()
    row = rng.randrange(schedule.num_operations)
    for name, change in (("end_ns", 1), ("microbatch", 1), ("stage", 1)):
        column = getattr(schedule, name).copy()
        column[row] += change
        assert validate(roomy, replace(schedule, **{name: column}), period_ns) != ()
    kept = np.arange(schedule.num_operations) != row
    columns = {
        name: getattr(schedule, name)[kept]
        for name in ("kind", "stage", "pipeline", "microbatch", "start_ns", "end_ns")
    }
    offsets = schedule.offsets - (schedule.offsets > row)
    found = validate(roomy, replace(schedule, offsets=offsets, **columns), period_ns)
    assert "missing_operation" in {v.code for v in found}

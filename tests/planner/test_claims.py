"""What a plan claims beside its schedule: everything that can be worked out again is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from planner.bounds import lower_bounds
from planner.claims import unproved_claims
from planner.errors import InvalidScheduleError, PlanFileError
from planner.failure_key import parse_failure_key
from planner.formats.plan_file import dump_plan, load_plan
from planner.migration import Migration
from planner.operation import Worker
from planner.plan import Plan, Seat
from planner.plan_check import check_plan, slot_summaries
from planner.replay import replay
from planner.schedule import parse_schedule
from planner.timing import time_schedule
from tests.plans import planned_problem, tiny_plan

MOVE = Migration(source=Worker(1, 0), target=Worker(1, 1), copy_from=Worker(0, 1), num_bytes=10)
"""It fits the tiny plan, whose worker 1/1 is down, as a move that is advised."""

SLOWER = """\
0/0: 0F0.0 0I0.0 0W0.0 0F0.1 0I0.1 0W0.1
0/1: 1F0.0 1F1.0 1I0.0 1I1.0 1F0.1 1F1.1 1I0.1 1I1.1 1W0.0 1W1.0 1W0.1 1W1.1
1/0: 0F1.0 0I1.0 0W1.0 0F1.1 0I1.1 0W1.1
"""
"""Worker 0/1 waits for the second microbatches while its W are put off."""


def slot(plan: Plan, **changes: Any) -> Plan:
    """The plan with another summary of its second slot."""
    return replace(plan, slots=(plan.slots[0], replace(plan.slots[1], **changes)))


def test_the_tiny_plan_keeps_what_it_claims() -> None:
    """As it is, with moves that it advises, and with a weaker bound of a slot than formulas prove."""
    check_plan(tiny_plan())
    check_plan(tiny_plan(advised_migrations=(MOVE,)))
    check_plan(slot(tiny_plan(), bound_ns=11_000))


CLAIMS: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "no failed workers": (lambda plan: replace(plan, failed_workers=()), "names none as failed"),
    "another failed worker": (lambda plan: replace(plan, failed_workers=(Worker(0, 1),)), "names 0/1 as failed"),
    "a failed worker too many": (
        lambda plan: replace(plan, failed_workers=(Worker(0, 0), Worker(1, 1))),
        "dead workers are 1/1",
    ),
    "a failed worker twice": (lambda plan: replace(plan, failed_workers=(Worker(1, 1),) * 2), "dead workers are 1/1"),
    "a failed worker that is not there": (
        lambda plan: replace(plan, failed_workers=(Worker(1, 1), Worker(7, 7))),
        "failures and migrations do not fit",
    ),
    "slow workers": (lambda plan: replace(plan, degraded=((Worker(0, 0), 500_000),)), "degraded"),
    "failure key": (lambda plan: replace(plan, failure_key=parse_failure_key("1,0")), "failure key 1,0"),
    "fault-free period below its bound": (lambda plan: replace(plan, fault_free_ns=6_999), "at least 7000 ns"),
    "fault-free period above its own": (lambda plan: replace(plan, fault_free_ns=12_001), "at most its own period"),
    # (2 + 2 - 1) * 3 us.
    "1F1B": (lambda plan: replace(plan, baseline_1f1b_ns=9_001), "it is 9000 ns"),
    "live workers": (lambda plan: slot(plan, live_workers=2), "live_workers 2 for slot 1; its schedule has 1"),
    "failed workers": (lambda plan: slot(plan, failed_workers=0), "failed_workers 0 for slot 1"),
    "least load": (lambda plan: slot(plan, min_load=3), "min_load 3 for slot 1; its schedule has 4"),
    "most load": (lambda plan: slot(plan, max_load=99), "max_load 99 for slot 1"),
    "busy time": (lambda plan: slot(plan, busy_ns=1), "busy_ns 1 for slot 1"),
    "window": (lambda plan: slot(plan, window_ns=1), "window_ns 1 for slot 1"),
    "bound of a slot": (lambda plan: slot(plan, bound_ns=12_001), "bound_ns 12001 for slot 1"),
    "peak": (lambda plan: slot(plan, peak_memory_bytes=5), "peak_memory_bytes 5 for slot 1"),
    "capacity": (lambda plan: slot(plan, capacity_bytes=5), "capacity_bytes 5 for slot 1"),
    "kind of bound": (lambda plan: replace(plan, bound_name="guess"), "of the kind 'guess'"),
    "slot of the bound": (lambda plan: replace(plan, bound_slot=0), "12000 ns of slot 0"),
    "slot of a search": (lambda plan: replace(plan, bound_name="search"), "expected no slot"),
    "part in another slot": (
        lambda plan: replace(plan, relabelling=(Seat(worker=Worker(0, 0), part=Worker(1, 1)),)),
        "expected another of its slot",
    ),
    "part that is not there": (
        lambda plan: replace(plan, relabelling=(Seat(worker=Worker(0, 0), part=Worker(9, 0)),)),
        "expected another of its slot",
    ),
    "migration that was not made": (lambda plan: replace(plan, migrations=(MOVE,)), "dead workers are 1/1"),
    "migration of a dead worker": (
        lambda plan: replace(plan, migrations=(replace(MOVE, source=Worker(1, 1)),)),
        "do not fit",
    ),
    "advice into a live position": (
        lambda plan: replace(plan, advised_migrations=(replace(MOVE, target=Worker(0, 1)),)),
        "do not fit",
    ),
    "copy from another slot": (
        lambda plan: replace(plan, advised_migrations=(replace(MOVE, copy_from=Worker(0, 0)),)),
        "expected a live worker of slot 1",
    ),
    "copy from a dead worker": (
        lambda plan: replace(plan, advised_migrations=(replace(MOVE, copy_from=Worker(1, 1)),)),
        "expected a live worker of slot 1",
    ),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_that_does_not_hold_is_refused(name: str) -> None:
    """Though the file is sound and its hash fits."""
    change, match = CLAIMS[name]
    forged = load_plan(dump_plan(change(tiny_plan())))
    with pytest.raises(InvalidScheduleError, match=match):
        check_plan(forged)


@pytest.mark.parametrize(
    "ranks",
    [
        ("x", "2-3", "4-5", "6-7"),
        ("", "2-3", "4-5", "6-7"),
        ("-1", "2", "4", "6"),
        ("1-0", "2-3", "4-5", "6-7"),
        ("0,0", "2-3", "4-5", "6-7"),
        ("3,2", "0-1", "4-5", "6-7"),
        ("0-1", "1-2", "4-5", "6-7"),
        ("0-2", "3", "4-5", "6-7"),
        ("0-9999999", "2-3", "4-5", "6-7"),
        ("0" * 5000, "2-3", "4-5", "6-7"),
    ],
)
def test_ranks_are_those_of_a_layout(ranks: tuple[str, ...]) -> None:
    """Ascending, each of one worker only, each worker as many."""
    with pytest.raises(PlanFileError, match="worker_ranks"):
        tiny_plan(worker_ranks=ranks)


def test_what_cannot_be_proved_again_is_named() -> None:
    """A bound by search beyond the formulas', and a fault-free period between its bound and this plan's."""
    assert unproved_claims(tiny_plan()) == ()
    by_search = tiny_plan(bound_name="search", bound_slot=None)
    check_plan(by_search)
    # The formulas prove as much: nothing rests on the search.
    assert unproved_claims(by_search) == ()
    (claim,) = unproved_claims(tiny_plan(fault_free_ns=8_000))
    assert claim == "a plan without failures reached 8000 ns; no schedule is faster than 7000 ns"


def test_a_bound_beyond_the_formulas_is_named() -> None:
    """Of a slower plan said to be the fastest: nobody but the search that is named can know."""
    problem = planned_problem()
    schedule, period_ns = time_schedule(problem, parse_schedule(SLOWER, 2, 2))
    assert period_ns > 12_000
    replayed = replay(problem, schedule)
    slots = slot_summaries(problem, schedule, lower_bounds(problem), replayed.peak_bytes)
    changes = {"schedule": schedule, "period_ns": period_ns, "bound_ns": period_ns, "slots": slots}
    by_search = tiny_plan(bound_name="search", bound_slot=None, **changes)
    check_plan(by_search)
    claim = unproved_claims(by_search)[0]
    assert claim == f"a solver's search proved the bound of {period_ns} ns; formulas prove 12000 ns"
    with pytest.raises(InvalidScheduleError, match=f"work bound {period_ns} ns of slot 1; its problem proves 12000 ns"):
        check_plan(tiny_plan(**changes))

"""A small plan made by hand, for tests of everything that takes plans in.

Two pipelines x two slots, two microbatches each, every operation 1,000 ns, no memory, worker 1/1 down. Worker 0/1 runs four
microbatches alone: 4 * 3 = 12 operations without a gap, so the period is 12,000 ns and the work bound proves it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.failure_key import failure_key
from planner.operation import Worker
from planner.plan import Plan, PlanStatus, SlotSummary
from planner.problem import Problem, Slot, Stage
from planner.schedule import Schedule, parse_schedule
from planner.timing import time_schedule

ORDERS = """\
0/0: 0F0.0 0F0.1 0I0.0 0W0.0 0I0.1 0W0.1
0/1: 1F0.0 1F1.0 1I0.0 1I1.0 1F0.1 1F1.1 1I0.1 1I1.1 1W0.0 1W1.0 1W0.1 1W1.1
1/0: 0F1.0 0F1.1 0I1.0 0W1.0 0I1.1 0W1.1
"""


def planned_problem(**changes: Any) -> Problem:
    """The problem of the plan above."""
    stage = Stage(forward_ns=1000, input_grad_ns=1000, weight_grad_ns=1000)
    problem = Problem(
        stages=(stage, stage),
        slots=(Slot(stages=(0,)), Slot(stages=(1,))),
        microbatches=(2, 2),
        dead=frozenset({Worker(1, 1)}),
    )
    return replace(problem, **changes)


def tiny_schedule(problem: Problem, orders: str = ORDERS) -> Schedule:
    """Its schedule, timed."""
    return time_schedule(problem, parse_schedule(orders, 2, 2))[0]


def tiny_plan(**changes: Any) -> Plan:
    """The plan above, or one with other parts."""
    problem = planned_problem()
    # Slot 0: two workers, each two microbatches, busy for 2 * 3 operations. Its first F runs at 0; its last I waits for
    # 1I1.1, which ends at 9,000, and its W follows: 11,000 in all.
    slots = (
        SlotSummary(
            live_workers=2,
            failed_workers=0,
            min_load=2,
            max_load=2,
            busy_ns=6000,
            window_ns=11000,
            bound_ns=6000,
            peak_memory_bytes=0,
            capacity_bytes=None,
        ),
        SlotSummary(
            live_workers=1,
            failed_workers=1,
            min_load=4,
            max_load=4,
            busy_ns=12000,
            window_ns=12000,
            bound_ns=12000,
            peak_memory_bytes=0,
            capacity_bytes=None,
        ),
    )
    parts: dict[str, Any] = {
        "job_name": "tiny",
        "job_sha256": "0" * 64,
        "problem": problem,
        "schedule": tiny_schedule(problem),
        "worker_ranks": ("0-1", "2-3", "4-5", "6,8"),
        "failed_nodes": ("n3",),
        "failed_workers": (Worker(1, 1),),
        "degraded": (),
        "failure_key": failure_key(problem),
        "status": PlanStatus.OPTIMAL,
        "period_ns": 12_000,
        "bound_ns": 12_000,
        "bound_name": "work",
        "bound_slot": 1,
        "fault_free_ns": 7_000,
        "baseline_1f1b_ns": 9_000,
        "slots": slots,
        "notes": ("made by hand",),
        "solver": "hand",
        "seed": 0,
        "deadline_s": 2.0,
        "target_gap": 0.0,
        "solver_workers": 1,
        "versions": (("replan", "0"),),
        "wall_s": 0.5,
    }
    return Plan(**(parts | changes))

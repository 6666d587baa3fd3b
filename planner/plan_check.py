"""The checks that every plan passes before it leaves, and after it comes in; and the figures they yield.

Solvers are not trusted: a schedule is validated against its problem, its period confirmed by a replay to the tick, and
its lowered programs proved free of deadlock.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planner.bounds import Bound, lower_bounds
from planner.claims import check_claims
from planner.deadlock import require_deadlock_free
from planner.errors import InvalidScheduleError
from planner.lowering import lower
from planner.operation import Kind
from planner.plan import Plan, SlotSummary
from planner.problem import Problem
from planner.replay import Replay, replay
from planner.schedule import Schedule
from planner.validation import require_valid


def check_plan(plan: Plan) -> Replay:
    """Check a plan that came from outside: its schedule as strictly as one of our own, and all that it claims beside.

    What cannot be worked out again is named by :func:`planner.claims.unproved_claims`.

    Raises
    ------
    InvalidScheduleError
        If the schedule breaks a constraint, does not have the claimed period, or a claim does not hold.
    DeadlockError
        If its programs would wait for each other in a cycle.
    """
    replayed = check_schedule(plan.problem, plan.schedule, plan.period_ns)
    bounds = lower_bounds(plan.problem)
    slots = slot_summaries(plan.problem, plan.schedule, bounds, tuple(replayed.peak_bytes))
    check_claims(plan, bounds, slots)
    return replayed


def check_schedule(problem: Problem, schedule: Schedule, period_ns: int) -> Replay:
    """Validate a schedule, confirm its period by replay and prove its programs free of deadlock.

    Raises
    ------
    InvalidScheduleError, DeadlockError
        If one of them fails.
    """
    require_valid(problem, schedule, period_ns)
    replayed = replay(problem, schedule)
    if replayed.period_ns != period_ns:
        raise InvalidScheduleError(
            f"the plan claims the period {period_ns} ns; a replay reaches {replayed.period_ns} ns"
        )
    require_deadlock_free(lower(problem, schedule))
    return replayed


def slot_summaries(
    problem: Problem, schedule: Schedule, bounds: Sequence[Bound], peak_bytes: Sequence[int]
) -> tuple[SlotSummary, ...]:
    """Load, times, bound and memory of each slot."""
    shape = (problem.num_pipelines, problem.num_slots)
    worker = schedule.worker_of_row()
    busy = np.zeros(shape[0] * shape[1], np.int64)
    np.add.at(busy, worker, schedule.end_ns - schedule.start_ns)
    loads = np.bincount(worker[schedule.kind == Kind.F], minlength=shape[0] * shape[1]).reshape(shape)
    busy = busy.reshape(shape)
    slot_of_row = worker % problem.num_slots
    first = np.full(shape[1], np.iinfo(np.int64).max)
    last = np.zeros(shape[1], np.int64)
    np.minimum.at(first, slot_of_row, schedule.start_ns)
    np.maximum.at(last, slot_of_row, schedule.end_ns)
    summaries = []
    for s, slot in enumerate(problem.slots):
        live = list(problem.live_pipelines(s))
        summaries.append(
            SlotSummary(
                live_workers=len(live),
                failed_workers=problem.num_pipelines - len(live),
                min_load=int(loads[live, s].min()),
                max_load=int(loads[live, s].max()),
                busy_ns=int(busy[live, s].max()),
                window_ns=int(last[s] - first[s]) + slot.sync_ns,
                bound_ns=max((bound.value_ns for bound in bounds if bound.slot == s), default=0),
                peak_memory_bytes=int(peak_bytes[s]),
                capacity_bytes=slot.capacity_bytes,
            )
        )
    return tuple(summaries)

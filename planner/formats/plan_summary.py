"""A plan's figures as one JSON object: what ``replan plan --json`` prints and the API answers with.

Durations are microseconds (``_us``), memory is bytes. The operations themselves are in the plan file and the programs.
"""

from __future__ import annotations

from typing import Any

from planner.matching import reroutes_of
from planner.operation import Worker
from planner.plan import Plan
from planner.plan_content import migration_content
from planner.problem import FULL_SPEED_PPM
from planner.units import ns_to_us


def plan_summary(plan: Plan) -> dict[str, Any]:
    """Everything about a plan but its schedule, as plain JSON values."""
    return {
        "plan_id": plan.plan_id,
        "job": plan.job_name,
        "job_sha256": plan.job_sha256,
        "status": plan.status.value,
        "period_us": ns_to_us(plan.period_ns),
        "bound_us": ns_to_us(plan.bound_ns),
        "bound": {"name": plan.bound_name, "slot": plan.bound_slot},
        "gap": plan.gap,
        "fault_free_us": ns_to_us(plan.fault_free_ns),
        "baseline_1f1b_us": None if plan.baseline_1f1b_ns is None else ns_to_us(plan.baseline_1f1b_ns),
        "throughput_kept": plan.throughput_kept,
        "failed_nodes": list(plan.failed_nodes),
        "failed_workers": [str(worker) for worker in plan.failed_workers],
        "degraded": {str(worker): ppm / FULL_SPEED_PPM for worker, ppm in plan.degraded},
        "failure_key": str(plan.failure_key),
        "num_pipelines": plan.problem.num_pipelines,
        "num_slots": plan.problem.num_slots,
        "num_operations": plan.schedule.num_operations,
        "slots": [slot_document(plan, s) for s in range(plan.problem.num_slots)],
        "peak_memory_bytes": list(plan.peak_memory_bytes),
        "reroutes": [
            {"slot": slot, "home": home, "runs_on": str(Worker(helper, slot)), "microbatches": count}
            for home, slot, helper, count in reroutes_of(plan.schedule).tolist()
        ],
        "migrations": [migration_content(move) for move in plan.migrations],
        "advised_migrations": [migration_content(move) for move in plan.advised_migrations],
        "relabelled": {str(seat.worker): str(seat.part) for seat in plan.relabelling},
        "notes": list(plan.notes),
        "solver": plan.solver,
        "seed": plan.seed,
        "deadline_s": plan.deadline_s,
        "target_gap": plan.target_gap,
        "solver_workers": plan.solver_workers,
        "deterministic": plan.deterministic,
        "versions": dict(plan.versions),
        "wall_s": plan.wall_s,
    }


def slot_document(plan: Plan, slot: int) -> dict[str, Any]:
    """One slot's figures; ``idle_ratio`` is the busiest worker's idle share of the period."""
    summary = plan.slots[slot]
    return {
        "slot": slot,
        "stages": list(plan.problem.slots[slot].stages),
        "live_workers": summary.live_workers,
        "failed_workers": summary.failed_workers,
        "min_load": summary.min_load,
        "max_load": summary.max_load,
        "busy_us": ns_to_us(summary.busy_ns),
        "window_us": ns_to_us(summary.window_ns),
        "bound_us": ns_to_us(summary.bound_ns),
        "idle_ratio": 0.0 if plan.period_ns == 0 else 1 - summary.busy_ns / plan.period_ns,
        "peak_memory_bytes": summary.peak_memory_bytes,
        "capacity_bytes": summary.capacity_bytes,
    }

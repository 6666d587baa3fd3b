"""A plan's content as plain JSON values, its canonical bytes and its id.

Operations stand as one string a worker, ``"0F0.0 0F0.1 0I0.0"``, and their starts as integer nanoseconds beside them;
durations follow from the problem. Canonical JSON has sorted keys, no spaces and ASCII only.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from planner.migration import Migration
from planner.problem import Problem
from planner.schedule_json import schedule_json

if TYPE_CHECKING:
    from planner.plan import Plan


def canonical_json(content: Any) -> bytes:
    """Canonical JSON of plain values: equal values give equal bytes."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode("ascii")


def content_id(content: bytes) -> str:
    """sha256 of a content's canonical JSON, 64 hexadecimal digits: a plan's id."""
    return hashlib.sha256(content).hexdigest()


def plan_json(plan: Plan) -> bytes:
    """Canonical JSON of everything of a plan but ``wall_s``, ``hindered`` and ``plan_id``."""
    parts = {name: canonical_json(value) for name, value in plan_facts(plan).items()}
    parts["schedule"] = schedule_json(plan.schedule)
    return b"{" + b",".join(b'"%s":%s' % (name.encode("ascii"), parts[name]) for name in sorted(parts)) + b"}"


def plan_facts(plan: Plan) -> dict[str, Any]:
    """Everything of :func:`plan_json` but the schedule, as plain JSON values."""
    return {
        "job": {"name": plan.job_name, "sha256": plan.job_sha256},
        "failures": {
            "nodes": list(plan.failed_nodes),
            "workers": [str(worker) for worker in plan.failed_workers],
            "degraded_ppm": {str(worker): ppm for worker, ppm in plan.degraded},
            "key": str(plan.failure_key),
        },
        "problem": problem_content(plan.problem),
        "worker_ranks": list(plan.worker_ranks),
        "result": {
            "status": plan.status.value,
            "period_ns": plan.period_ns,
            "bound": {"ns": plan.bound_ns, "name": plan.bound_name, "slot": plan.bound_slot},
            "fault_free_ns": plan.fault_free_ns,
            "baseline_1f1b_ns": plan.baseline_1f1b_ns,
            "slots": [{name: getattr(slot, name) for name in slot.__slots__} for slot in plan.slots],
            "migrations": [migration_content(move) for move in plan.migrations],
            "advised_migrations": [migration_content(move) for move in plan.advised_migrations],
            "relabelling": {str(seat.worker): str(seat.part) for seat in plan.relabelling},
            "notes": list(plan.notes),
        },
        "provenance": {
            "solver": plan.solver,
            "seed": plan.seed,
            "deadline_s": float(plan.deadline_s),
            "target_gap": float(plan.target_gap),
            "solver_workers": plan.solver_workers,
            # Left out where it is not so: plans that were written before there was a choice keep their ids.
            **({"deterministic": True} if plan.deterministic else {}),
            "versions": dict(plan.versions),
        },
    }


def problem_content(problem: Problem) -> dict[str, Any]:
    """A problem as plain JSON values; durations in integer nanoseconds."""
    return {
        "optimizer": problem.optimizer.value,
        "microbatches": list(problem.microbatches),
        "stages": [{name: getattr(stage, name) for name in stage.__slots__} for stage in problem.stages],
        "slots": [
            {"stages": list(slot.stages), "sync_ns": slot.sync_ns, "capacity_bytes": slot.capacity_bytes}
            for slot in problem.slots
        ],
        "dead": [str(worker) for worker in sorted(problem.dead)],
        "speeds_ppm": {str(worker): problem.speeds_ppm[worker] for worker in sorted(problem.speeds_ppm)},
    }


def migration_content(move: Migration) -> dict[str, Any]:
    """A migration as plain JSON values."""
    return {
        "source": str(move.source),
        "target": str(move.target),
        "copy_from": str(move.copy_from),
        "num_bytes": move.num_bytes,
        "seconds": None if move.seconds is None else float(move.seconds),
    }

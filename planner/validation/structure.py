"""Checks that do not look at times: what runs, how often, and where."""

from __future__ import annotations

import numpy as np

from planner.dataflow import NO_ROW, Dataflow
from planner.operation import Kind, Operation
from planner.schedule import IntColumn
from planner.validation.findings import Findings, Violation


def check_known(findings: Findings, flow: Dataflow) -> None:
    """Every stage, pipeline and microbatch exists in the problem."""
    problem = findings.problem
    findings.add_rows(
        "unknown_operation",
        np.flatnonzero(~flow.known),
        lambda _: (
            f"does not exist; expected stages 0..{problem.num_stages - 1}, pipelines 0..{problem.num_pipelines - 1} "
            "and microbatches below their pipeline's count"
        ),
    )


def check_conservation(findings: Findings, flow: Dataflow) -> None:
    """Each microbatch has at each stage one F, and either one I and one W or one B."""
    problem, schedule = findings.problem, findings.schedule
    places = problem.num_stages * problem.num_microbatches
    rows = np.flatnonzero(flow.known)
    place = schedule.stage[rows] * problem.num_microbatches + flow.microbatch_id[rows]
    code = schedule.kind[rows] * places + place
    counts = np.bincount(code, minlength=4 * places).reshape(4, places)
    has_f, has_i, has_w, has_b = counts > 0
    _missing(findings, np.flatnonzero(~has_f), Kind.F, "has no F here")
    splittable = np.repeat([s.splittable for s in problem.stages], problem.num_microbatches)
    none_at_all = ~has_i & ~has_w & ~has_b
    _missing(findings, np.flatnonzero(none_at_all & splittable), Kind.I, "has no backward here; expected I and W, or B")
    _missing(findings, np.flatnonzero(none_at_all & ~splittable), Kind.B, "has no backward here; expected B")
    _missing(findings, np.flatnonzero(has_w & ~has_i & ~has_b), Kind.I, "has W but no I here")
    _missing(findings, np.flatnonzero(has_i & ~has_w & ~has_b), Kind.W, "has I but no W here")

    if bool(np.any(counts > 1)):
        order = np.argsort(code, kind="stable")
        again = rows[order[1:]][np.diff(code[order]) == 0]
        findings.add_rows("duplicate_operation", np.sort(again), lambda _: "stands again; expected once")
    is_split = (schedule.kind[rows] == Kind.I) | (schedule.kind[rows] == Kind.W)
    findings.add_rows(
        "mixed_backward",
        rows[is_split & has_b[place]],
        lambda _: "the same microbatch also has B at this stage; expected I and W, or B",
    )
    findings.add_rows(
        "unsplittable",
        rows[is_split & ~splittable[place]],
        lambda row: f"stage {schedule.stage[row]} cannot split its backward; expected B",
    )


def check_placement(findings: Findings, flow: Dataflow) -> None:
    """Each operation is on a live worker of its stage's slot, and all of one microbatch at one stage on the same."""
    problem, schedule = findings.problem, findings.schedule
    slot_of_stage = np.array(problem.slot_of_stage, dtype=np.int64)
    stage = np.where(flow.known, schedule.stage, 0)
    slot = flow.worker % schedule.num_slots
    findings.add_rows(
        "wrong_slot",
        np.flatnonzero(flow.known & (slot_of_stage[stage] != slot)),
        lambda row: f"stage {schedule.stage[row]} is held by slot {slot_of_stage[schedule.stage[row]]}",
    )
    has_forward = flow.forward_row != NO_ROW
    findings.add_rows(
        "worker_changed",
        np.flatnonzero(has_forward & (schedule.kind != Kind.F) & (flow.worker[flow.forward_row] != flow.worker)),
        lambda row: (
            f"its F ran on worker {findings.worker(int(flow.forward_row[row]))}, where its activations are; "
            "expected the same worker"
        ),
    )
    dead = np.zeros(schedule.num_pipelines * schedule.num_slots, dtype=np.bool_)
    for worker in problem.dead:
        dead[worker.pipeline * schedule.num_slots + worker.slot] = True
    findings.add_rows("dead_worker", np.flatnonzero(dead[flow.worker]), lambda _: "the worker is down")


def _missing(findings: Findings, places: IntColumn, kind: Kind, what: str) -> None:
    """One violation for each place (stage times microbatches) that lacks an operation."""
    problem = findings.problem
    first_ids = np.cumsum((0, *problem.microbatches))
    taken = max(0, min(len(places), findings.limit - len(findings.violations)))
    findings.num_left_out += len(places) - taken
    for place in places[:taken].tolist():
        stage, microbatch_id = divmod(place, problem.num_microbatches)
        pipeline = int(first_ids.searchsorted(microbatch_id, side="right")) - 1
        operation = Operation(kind, stage, pipeline, microbatch_id - int(first_ids[pipeline]))
        message = f"stage {stage}: microbatch {pipeline}.{operation.microbatch} {what}; {operation} is missing"
        findings.add(Violation("missing_operation", None, operation, None, message))

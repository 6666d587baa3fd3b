"""What a solver process does with a request: bytes in, bytes out, no web and no store."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from api.jobs import materialise, slot_bounds
from api.messages import Handler
from api.models import PlanOptions, PlanRequest
from api.precompute import keys, template
from api.views import drawing
from planner.failures import parse_failures
from planner.formats.job_file import job_from_document
from planner.formats.plan_file import dump_plan, load_plan
from planner.formats.plan_summary import plan_summary
from planner.lowering import lower
from planner.plan import Plan
from solver_models.planning import Reference, make_plan
from solver_models.result import SolveOptions
from solver_models.warm_up import warm_up as warm_up_solvers

_WARM_UP_REQUEST: dict[str, Any] = {
    "job": {
        "schema_version": 1,
        "name": "warm-up",
        "topology": {"nodes": "n[0-3]", "gpus_per_node": 1},
        "layout": {"pipeline_parallel": 2, "data_parallel": 2, "rank_order": "pp-dp"},
        "microbatches": 3,
        "stage_costs": {"forward_us": 3, "input_grad_us": 4, "weight_grad_us": 2, "activation_bytes": 2},
        "capacity_bytes": 4,
    },
    "failures": {"fail": ["n1"]},
    "options": {"deadline_s": 0.2},
}


def answer_plan(parts: list[bytes]) -> list[bytes]:
    """Make a plan.

    Parameters
    ----------
    parts
        A request in its canonical JSON, see :meth:`api.models.PlanRequest.canonical`; and the summary of an earlier plan of the
        job, empty where there is none, so that all of them are compared with the same.

    Returns
    -------
    list[bytes]
        Plan id, plan file, summary, and ``hindered`` where another try may find a better plan, else nothing.

    Raises
    ------
    ReplanError
        If the job, the failures or the options are not sound, or there is no plan.
    """
    # Not by pydantic's own JSON reader: it refuses half a surrogate pair, which the first reading took as text.
    request = PlanRequest.model_validate(json.loads(parts[0]))
    job = job_from_document(request.job)
    failures = parse_failures(job, request.failures.fail, request.failures.degrade)
    plan = make_plan(
        job,
        failures,
        solve_options(request.options),
        migrate=request.options.migrate,
        shards_restored=request.options.shards_restored,
        reference=_reference(parts[1]),
    )
    hindered = b"hindered" if plan.hindered else b""
    return [plan.plan_id.encode("ascii"), dump_plan(plan), _to_json(plan_summary(plan)), hindered]


def answer_programs(parts: list[bytes]) -> list[bytes]:
    """Lower a plan to the programs of all its live workers.

    Parameters
    ----------
    parts
        One part: a plan file.

    Returns
    -------
    list[bytes]
        JSON object from global rank to worker, then worker and program in turn.

    Raises
    ------
    PlanFileError
        If the plan file is damaged.
    """
    plan = load_plan(parts[0])
    programs = lower(plan.problem, plan.schedule)
    answer = [_to_json(workers_of_ranks(plan))]
    for worker in programs.workers():
        document = {"plan_id": plan.plan_id, **programs.program(worker).to_dict()}
        answer += [str(worker).encode("ascii"), _to_json(document)]
    return answer


def _reference(summary: bytes) -> Reference | None:
    """What the job's earlier plan was compared with."""
    if not summary:
        return None
    figures = json.loads(summary)
    if figures["baseline_1f1b_us"] is None:
        return None
    return Reference(
        fault_free_ns=round(1000 * figures["fault_free_us"]), baseline_1f1b_ns=round(1000 * figures["baseline_1f1b_us"])
    )


def solve_options(form: PlanOptions) -> SolveOptions:
    """Limits of the search that a request asks for; one thread each, since the service runs several searches at once."""
    return SolveOptions(deadline_s=form.deadline_s, target_gap=form.target_gap, seed=form.seed, workers=1)


def workers_of_ranks(plan: Plan) -> dict[str, str]:
    """Worker of each global rank, both as text; empty where the plan does not know the layout."""
    found: dict[str, str] = {}
    for index, text in enumerate(plan.worker_ranks):
        worker = str(plan.schedule.worker_at(index))
        for part in text.split(","):
            first, _, last = part.partition("-")
            found |= {str(rank): worker for rank in range(int(first), int(last or first) + 1)}
    return found


def warm_up() -> None:
    """Plan, lower and materialise a tiny job, so that all code is loaded and compiled before the first request."""
    warm_up_solvers()
    _, plan, _, _ = answer_plan([PlanRequest.model_validate(_WARM_UP_REQUEST).canonical(), b""])
    answer_programs([plan])
    document = json.dumps(_WARM_UP_REQUEST["job"]).encode()
    made, _ = template.answer_template(
        template.TemplateRequest(failure_key="0,0", deadline_s=0.05).message(document)[1:]
    )
    relabelling: dict[str, list[list[int]]] = {"home": [], "swaps": []}
    epoch = materialise.MaterialiseRequest(failed_nodes=[], empty=[], speeds_ppm={}, moved={}, relabelling=relabelling)
    materialise.answer_materialise(epoch.message(document, made)[1:])


def _to_json(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":"), allow_nan=False).encode("ascii")


HANDLERS: Mapping[bytes, Handler] = {
    b"plan": answer_plan,
    b"programs": answer_programs,
    template.HANDLER: template.answer_template,
    keys.HANDLER: keys.answer_keys,
    materialise.HANDLER: materialise.answer_materialise,
    slot_bounds.HANDLER: slot_bounds.answer_slot_bounds,
    drawing.HANDLER: drawing.answer_drawing,
}
"""What a request may name as its first part."""

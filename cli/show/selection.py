"""Which workers of a plan are drawn."""

from __future__ import annotations

from planner.errors import NotFoundError
from planner.matching import reroutes_of
from planner.operation import Worker
from planner.plan import Plan

MOST_WORKERS = 64
"""Rows drawn where nobody chose."""


def all_workers(plan: Plan) -> list[Worker]:
    """Every worker, by pipeline and slot."""
    return [Worker(k, s) for k in range(plan.problem.num_pipelines) for s in range(plan.problem.num_slots)]


def select_workers(
    plan: Plan,
    *,
    workers: tuple[Worker, ...] | None,
    slots: tuple[int, ...] | None,
    pipelines: tuple[int, ...] | None,
) -> list[Worker]:
    """Workers to draw.

    Without a choice all of them; of a plan with more than :data:`MOST_WORKERS` the pipelines with failures, then those
    who run microbatches for others, as many as fit.

    Raises
    ------
    NotFoundError
        If a worker, slot or pipeline does not exist.
    """
    problem = plan.problem
    asked = (
        [*(w.slot for w in workers or ()), *(slots or ())],
        [*(w.pipeline for w in workers or ()), *(pipelines or ())],
    )
    for what, numbers, limit in (
        ("slot", asked[0], problem.num_slots),
        ("pipeline", asked[1], problem.num_pipelines),
    ):
        unknown = next((number for number in numbers if number >= limit), None)
        if unknown is not None:
            raise NotFoundError(f"the plan has no {what} {unknown}; expected 0 to {limit - 1}")
    if workers is not None:
        return [w for w in workers if _fits(w, slots, pipelines)]
    everyone = [w for w in all_workers(plan) if _fits(w, slots, pipelines)]
    if slots is not None or pipelines is not None or len(everyone) <= MOST_WORKERS:
        return everyone
    return sorted(_most_interesting(plan)[:MOST_WORKERS])


def _fits(worker: Worker, slots: tuple[int, ...] | None, pipelines: tuple[int, ...] | None) -> bool:
    return (slots is None or worker.slot in slots) and (pipelines is None or worker.pipeline in pipelines)


def _most_interesting(plan: Plan) -> list[Worker]:
    problem = plan.problem
    touched = dict.fromkeys(sorted([*problem.dead, *problem.speeds_ppm]))
    helpers = dict.fromkeys(Worker(helper, slot) for _, slot, helper, _ in reroutes_of(plan.schedule).tolist())
    homes = dict.fromkeys([worker.pipeline for worker in touched] or [0])
    rows = [Worker(k, s) for k in homes for s in range(problem.num_slots)]
    return list(dict.fromkeys([*touched, *rows[: MOST_WORKERS // 2], *helpers, *rows]))

"""Loads and compiles everything that planning runs, before anybody waits for a plan.

A process that is ready before its first request need not take compiling out of that request's deadline.
"""

from __future__ import annotations

from typing import Any

from planner.failures import parse_failures
from planner.formats.job_file import job_from_document
from solver_models.compilation import watched_compilation
from solver_models.planning import make_plan
from solver_models.result import SolveOptions

_MOST_ROUNDS = 6
"""Each round comes further down the ladder of solvers within its deadline; two or three do."""

_JOB: dict[str, Any] = {
    "schema_version": 1,
    "name": "warm-up",
    "topology": {"nodes": "n[0-5]", "gpus_per_node": 1},
    "layout": {"pipeline_parallel": 3, "data_parallel": 2, "rank_order": "pp-dp"},
    "microbatches": 3,
    "stage_costs": {
        "forward_us": 3,
        "input_grad_us": 4,
        "weight_grad_us": 2,
        "transfer_us": 1,
        "activation_bytes": 2,
        "weight_grad_bytes": 1,
    },
    "capacity_bytes": 6,
}
_PLACEMENTS = ("one_a_slot", "v")
"""With memory this short, no list schedule meets the bound: repair does under the first, nothing under the second."""


def warm_up() -> None:
    """Plan tiny jobs around a failure until nothing is compiled any more.

    Some 0.3 s where all is in the cache, 10 to 30 s in the first run after an installation.
    """
    for _ in range(_MOST_ROUNDS):
        with watched_compilation() as compilation:
            for placement in _PLACEMENTS:
                job = job_from_document(_JOB | {"placement": placement})
                make_plan(job, parse_failures(job, ["n1"], ()), SolveOptions(deadline_s=0.2))
        if not compilation:
            return

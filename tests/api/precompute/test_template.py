"""Templates as a solver process makes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from api.planning import HANDLERS
from api.precompute.template import ReferenceForm, TemplateRequest, read_template
from planner.errors import FailureSetError, StageLostError
from planner.failure_key import failure_key, parse_failure_key, problem_for_key
from planner.formats.job_file import job_from_document
from planner.formats.packed_plan import unpack_plan
from planner.job_hash import job_sha256
from planner.plan_check import check_plan

JOB: dict[str, Any] = json.loads((Path(__file__).parents[3] / "examples" / "plan-request.json").read_bytes())["job"]
"""ReCycle's worked example: three pipelines of four slots; 19 us without failures, 27 us with one in slot 2."""


def ask(request: TemplateRequest, job: dict[str, Any] = JOB) -> list[bytes]:
    """Answer of the handler that the request names."""
    name, *parts = request.message(json.dumps(job).encode())
    return HANDLERS[name](parts)


def test_a_key_becomes_a_checked_plan_of_its_canonical_problem() -> None:
    """The packed plan unfolds to one of exactly the canonical problem, passes all checks, and has the figures said of it."""
    answer = read_template(ask(TemplateRequest(failure_key="0,0,1,0", deadline_s=2)))
    plan = unpack_plan(answer.content)
    check_plan(plan)
    job = job_from_document(JOB)
    key = parse_failure_key("0,0,1,0")
    assert plan.problem == problem_for_key(job.problem(), key)
    assert (plan.job_sha256, plan.failure_key, failure_key(plan.problem)) == (job_sha256(job), key, key)
    figures = answer.figures
    assert (figures.period_ns, figures.bound_ns, figures.solver) == (plan.period_ns, plan.bound_ns, plan.solver)
    assert figures.period_ns == 27_000
    assert figures.reference == ReferenceForm(fault_free_ns=19_000, baseline_1f1b_ns=27_000)


def test_a_reference_that_is_given_is_not_made_again() -> None:
    """The plan is compared with what came along."""
    given = ReferenceForm(fault_free_ns=20_000, baseline_1f1b_ns=30_000)
    answer = read_template(ask(TemplateRequest(failure_key="0,0,1,0", deadline_s=2, reference=given)))
    assert answer.figures.reference == given
    assert unpack_plan(answer.content).baseline_1f1b_ns == 30_000


def test_degraded_workers_are_part_of_the_key() -> None:
    """A key with a worker at 70 % leads to a plan in which one is."""
    answer = read_template(ask(TemplateRequest(failure_key="0,0,0,0;1@700000", deadline_s=0.5)))
    assert list(unpack_plan(answer.content).problem.speeds_ppm.values()) == [700_000]


def test_sharded_optimizer_state_does_not_keep_a_template_from_being_made() -> None:
    """Whether shards are lost depends on the real failures; the schedule is wanted once they are restored."""
    job = JOB | {"optimizer_state": "sharded"}
    answer = read_template(ask(TemplateRequest(failure_key="0,0,1,0", deadline_s=2), job))
    assert answer.figures.period_ns == 27_000


@pytest.mark.parametrize(
    ("key", "error"), [("0,0,3,0", StageLostError), ("0,0,4,0", FailureSetError), ("0,0,1", FailureSetError)]
)
def test_keys_without_a_plan_are_refused(key: str, error: type[Exception]) -> None:
    """All workers of a slot dead, more than there are, and another number of slots."""
    with pytest.raises(error):
        ask(TemplateRequest(failure_key=key, deadline_s=0.5))

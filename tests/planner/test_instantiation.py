"""Templates on real workers."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InvalidScheduleError
from planner.failure_key import FailureKey, failure_key, problem_for_key
from planner.failures import FailureSet
from planner.formats.packed_plan import pack_plan, unpack_template
from planner.instantiation import apply, instantiate
from planner.job import Job, JobStage, Placement
from planner.layout import OrderedLayout
from planner.migration import Migration
from planner.normalization import Relabelling
from planner.operation import Worker
from planner.plan import Plan
from planner.plan_check import check_plan
from planner.problem import Stage
from planner.template import Template, template_of
from planner.topology import uniform_racks
from solver_models.planning import make_plan
from solver_models.result import SolveOptions

COSTS = Stage(forward_ns=3, input_grad_ns=4, weight_grad_ns=2, transfer_ns=1, activation_bytes=2, weight_grad_bytes=1)
JOB = Job(
    name="job",
    topology=uniform_racks(tuple(f"n{i}" for i in range(8)), 1, 2),
    layout=OrderedLayout(pipeline_parallel=2, data_parallel=4, rank_order=("pp", "dp")),
    placement=Placement.ONE_A_SLOT,
    slot_stages=((0,), (1,)),
    stages=(JobStage(costs=COSTS), JobStage(costs=COSTS)),
    capacity_bytes=(6, 6),
    microbatches=(3,) * 4,
)
RACKS = JOB.worker_racks().reshape(4, 2)


def failed(*workers: Worker, slow: dict[Worker, int] | None = None) -> FailureSet:
    """A failure set of workers."""
    return FailureSet(workers=tuple(sorted(workers)), dead=frozenset(workers), speeds_ppm=slow or {})


def template_for(key: FailureKey) -> Plan:
    """A plan of the canonical problem of a key."""
    canonical = problem_for_key(JOB.problem(), key)
    failures = failed(*canonical.dead, slow=dict(canonical.speeds_ppm))
    return make_plan(JOB, failures, SolveOptions(deadline_s=0.2, workers=1), migrate=False)


@pytest.fixture(scope="module")
def template() -> Plan:
    """One dead worker in slot 1 and a slow one in slot 0."""
    return template_for(FailureKey(dead=(0, 1), degraded=((500_000,), ())))


@given(st.integers(0, 3), st.integers(0, 3), st.booleans())
@settings(max_examples=20, deadline=None)
def test_plans_of_all_failure_sets_of_a_key(template: Plan, dead: int, slow: int, with_racks: bool) -> None:
    """Wherever the failures are, the plan passes every check and keeps the template's figures."""
    failures = failed(Worker(dead, 1), slow={Worker(slow, 0): 500_000})
    real = JOB.problem(failures.dead, failures.speeds_ppm)
    found = instantiate(template, real, RACKS if with_racks else None)
    plan = apply(template, JOB, failures, found, notes=("a note",))
    assert plan.problem == real
    assert (plan.period_ns, plan.slots, plan.failure_key) == (template.period_ns, template.slots, failure_key(real))
    assert plan.failed_workers == (Worker(dead, 1),)
    assert plan.notes == (*template.notes, "a note")
    assert {seat.worker for seat in plan.relabelling} == set(found.moved_workers)
    check_plan(plan)
    assert apply(template, JOB, failures, found, notes=("a note",)).plan_id == plan.plan_id


def test_a_template_remembers_what_instantiation_needs(template: Plan) -> None:
    """The plan, what is remembered of it, and what is read of it packed all give the same relabelling."""
    real = JOB.problem(frozenset({Worker(2, 1)}), {Worker(3, 0): 500_000})
    remembered, read = template_of(template), unpack_template(pack_plan(template))
    for field in fields(Template):
        a, b = getattr(remembered, field.name), getattr(read, field.name)
        assert np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b
    assert instantiate(template, real, RACKS) == instantiate(remembered, real, RACKS) == instantiate(read, real, RACKS)


def test_migrated_failures(template: Plan) -> None:
    """A template for another slot serves after a migration: 1/0 is dead, 1/1 takes over its place."""
    failures = failed(Worker(1, 0), slow={Worker(0, 0): 500_000})
    move = Migration(source=Worker(1, 1), target=Worker(1, 0), copy_from=Worker(2, 0), num_bytes=1)
    real = JOB.problem(frozenset({Worker(1, 1)}), failures.speeds_ppm)
    plan = apply(template, JOB, failures, instantiate(template, real), migrations=(move,))
    assert plan.problem.dead == {Worker(1, 1)}
    assert plan.failed_workers == (Worker(1, 0),)
    assert plan.migrations == (move,)


def test_what_does_not_fit(template: Plan) -> None:
    """Another key, another job, or a relabelling for other failures is refused."""
    real = JOB.problem(frozenset({Worker(2, 1)}), {Worker(3, 0): 500_000})
    found = instantiate(template, real)
    with pytest.raises(InvalidScheduleError, match="0,1;0@500000"):
        instantiate(template, JOB.problem(frozenset({Worker(2, 1)})))
    with pytest.raises(InvalidScheduleError, match="canonical"):
        instantiate(template, replace(real, microbatches=(3, 3, 3, 4)))
    failures = failed(Worker(2, 1), slow={Worker(3, 0): 500_000})
    with pytest.raises(InvalidScheduleError, match="another job"):
        apply(template, replace(JOB, name="other"), failures, found)
    with pytest.raises(InvalidScheduleError, match="plays"):
        apply(template, JOB, failed(Worker(0, 1), slow={Worker(3, 0): 500_000}), found)
    stay = Relabelling(home=np.arange(4), played_by=np.tile(np.arange(4), (2, 1)), dead=failures.dead)
    with pytest.raises(InvalidScheduleError, match="plays"):
        apply(template, JOB, failures, stay)

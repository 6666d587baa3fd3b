"""Failure keys up to a tolerance."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from planner.errors import OptionError, StageLostError
from planner.failure_key import problem_for_key
from planner.formats.job_file import load_job
from planner.job import Job, JobStage, Placement
from planner.layout import OrderedLayout
from planner.migration import advise_migrations, best_counts
from planner.operation import Worker
from planner.problem import Stage
from planner.slot_cost import bound_estimate
from planner.tolerance import MAX_KEYS, ToleranceMode, estimate_count, failure_keys, tolerated_keys
from planner.topology import uniform_racks

EXAMPLES = Path(__file__).parents[2] / "examples"


def job_of(pipelines: int, slots: int, *, capacity: int | None = None) -> Job:
    """Pipelines x slots on as many nodes; the middle slots cost twice as much as the first and the last."""
    costs = [2 if 0 < s < slots - 1 else 1 for s in range(slots)]
    return Job(
        name="job",
        topology=uniform_racks(tuple(f"n{i}" for i in range(pipelines * slots)), 1),
        layout=OrderedLayout(pipeline_parallel=slots, data_parallel=pipelines),
        placement=Placement.ONE_A_SLOT,
        slot_stages=tuple((s,) for s in range(slots)),
        stages=tuple(
            JobStage(costs=Stage(forward_ns=c, input_grad_ns=c, weight_grad_ns=c, activation_bytes=2)) for c in costs
        ),
        capacity_bytes=(capacity,) * slots,
        microbatches=(4,) * pipelines,
    )


def test_every_count_vector_once() -> None:
    """Three slots of two pipelines, up to three dead: all vectors are there, those without a live worker apart."""
    found = tolerated_keys(job_of(2, 3), 3, "all")
    expected = {counts for counts in product(range(3), repeat=3) if sum(counts) <= 3}
    lost = sorted(counts for counts in expected if 2 in counts)
    assert {key.dead for key in found.plannable} == expected - set(lost)
    assert len(found.plannable) == len(expected) - len(lost)
    assert [(key.dead, code) for key, code in found.unplannable] == [(counts, StageLostError.code) for counts in lost]
    assert estimate_count(job_of(2, 3), 3, "all") == len(expected)


def test_cheapest_first() -> None:
    """Keys come in order of their estimated period, of which the largest of a slot counts; none failed comes first."""
    job = job_of(3, 3)
    found = failure_keys(job, 2, "all")
    estimate = bound_estimate(job.problem())
    periods = [max(estimate(slot, dead) for slot, dead in enumerate(key.dead)) for key in found]
    assert periods == sorted(periods)
    assert found[0].dead == (0, 0, 0)
    # The middle slot is the slow one: two dead there are the dearest, (0, 2, 0).
    assert found[-1].dead == (0, 2, 0)


def test_normalized_keys_are_what_migrations_lead_to() -> None:
    """One key a count, with the smallest period there is: as small as after migrations from anywhere."""
    job = job_of(3, 3)
    problem, estimate = job.problem(), bound_estimate(job.problem())
    found = {sum(key.dead): key.dead for key in failure_keys(job, 2, "normalized")}
    assert sorted(found) == [0, 1, 2]
    # The middle slot has 12 microbatches of 6 ns on three workers, 24 ns at least; the cheap ones have 12 of 3 ns: one dead
    # makes 18 ns, so the middle slot goes on to decide, and the last slot is taken first.
    assert found[1] == (0, 0, 1)
    failed = replace(problem, dead=frozenset({Worker(0, 1), Worker(1, 1)}))
    advice = advise_migrations(failed, estimate, (1, 1, 1))
    assert max(estimate(slot, dead) for slot, dead in enumerate(found[2])) == advice.new_period_ns


def test_normalized_ends_where_a_stage_is_lost() -> None:
    """Two slots of two pipelines bear two dead workers, one in each, and no more."""
    found = tolerated_keys(job_of(2, 2), 4, ToleranceMode.NORMALIZED)
    assert [key.dead for key in found.plannable] == [(0, 0), (0, 1), (1, 1)]
    assert found.unplannable == ()
    with pytest.raises(StageLostError):
        best_counts(job_of(2, 2).problem(), 3, lambda _slot, _count: 0)


def test_memory_too_small_for_anything() -> None:
    """A job that no plan fits lists every key as unplannable, with the reason."""
    found = tolerated_keys(job_of(2, 2, capacity=1), 1, "all")
    assert found.plannable == ()
    assert {code for _, code in found.unplannable} == {"memory_too_small"}
    assert len(found.unplannable) == 3
    assert tolerated_keys(job_of(2, 2, capacity=1), 1, "normalized").unplannable == found.unplannable[:1]


def test_keys_have_problems_of_their_own() -> None:
    """No two keys have the same canonical problem, so none can be left out."""
    job = job_of(2, 3)
    keys = failure_keys(job, 3, "all")
    places = {problem_for_key(job.problem(), key).dead for key in keys}
    assert len(places) == len(keys)


@pytest.mark.parametrize(("pipelines", "slots", "tolerance"), [(1, 4, 4), (2, 3, 6), (3, 2, 4), (5, 3, 2), (2, 2, 0)])
def test_the_estimate_is_the_count(pipelines: int, slots: int, tolerance: int) -> None:
    """The formula counts what listing finds, also where counts are cut off by the number of pipelines."""
    job = job_of(pipelines, slots)
    found = tolerated_keys(job, tolerance, "all")
    assert estimate_count(job, tolerance, "all") == len(found.plannable) + len(found.unplannable)
    assert len(failure_keys(job, tolerance, "normalized")) <= estimate_count(job, tolerance, "normalized")


def test_llama3_405b() -> None:
    """16 slots and two failures: comb(18, 2) = 153 keys."""
    job = load_job(EXAMPLES / "llama3-405b.yaml")
    assert len(failure_keys(job, 2, "all")) == estimate_count(job, 2, "all") == 153
    # comb(16 + 12, 12) = 30,421,755 would take hours to list.
    with pytest.raises(OptionError, match="30421755"):
        failure_keys(job, 12, "all")
    assert estimate_count(job, 12, "all") > MAX_KEYS


@pytest.mark.parametrize(("tolerance", "mode"), [(-1, "all"), (5, "all"), (1, "some")])
def test_tolerances_out_of_range(tolerance: int, mode: str) -> None:
    """Fewer than none, more than there are workers, or another mode is refused."""
    for listing in (failure_keys, estimate_count):
        with pytest.raises(OptionError):
            listing(job_of(2, 2), tolerance, mode)

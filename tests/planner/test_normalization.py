"""Tests of failure keys, canonical problems and relabellings."""

from __future__ import annotations

import doctest
import random
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import FailureSetError, ProblemError
from planner.normalization import (
    FailureKey,
    Relabelling,
    canonical_problem,
    failure_key,
    parse_failure_key,
    problem_for_key,
    relabel,
    relabelling,
)
from planner.operation import Kind, Operation, Worker
from planner.problem import Problem, Slot, Stage
from planner.schedule import Schedule, TimedOperation, schedule_from_orders
from planner.timing import time_schedule
from planner.validation import require_valid


def _problem(
    microbatches: tuple[int, ...],
    num_slots: int,
    dead: tuple[Worker, ...] = (),
    speeds_ppm: dict[Worker, int] | None = None,
) -> Problem:
    """Unequal stages, one a slot, with transfers."""
    return Problem(
        stages=tuple(
            Stage(forward_ns=100 + 7 * v, input_grad_ns=90 + 5 * v, weight_grad_ns=60 + v, transfer_ns=11)
            for v in range(num_slots)
        ),
        slots=tuple(Slot(stages=(v,), sync_ns=50) for v in range(num_slots)),
        microbatches=microbatches,
        dead=frozenset(dead),
        speeds_ppm=speeds_ppm or {},
    )


@st.composite
def _problems(draw: st.DrawFn, max_pipelines: int = 5, max_slots: int = 4, *, plannable: bool = False) -> Problem:
    """Problems with uneven microbatch counts and any failures, more of them than pipelines included."""
    num_pipelines, num_slots = draw(st.integers(1, max_pipelines)), draw(st.integers(1, max_slots))
    microbatches = draw(st.lists(st.integers(1, 2), min_size=num_pipelines, max_size=num_pipelines))
    dead, speeds = [], {}
    for slot in range(num_slots):
        for pipeline in range(num_pipelines):
            state = draw(st.sampled_from(["healthy", "healthy", "healthy", "dead", "slow", "slower"]))
            if state == "dead":
                dead.append(Worker(pipeline, slot))
            elif state != "healthy":
                speeds[Worker(pipeline, slot)] = 700_000 if state == "slow" else 500_000
        if plannable and all(Worker(k, slot) in dead for k in range(num_pipelines)):
            dead.remove(Worker(draw(st.integers(0, num_pipelines - 1)), slot))
    return _problem(tuple(microbatches), num_slots, tuple(dead), speeds)


def _one_by_one(problem: Problem) -> Schedule:
    """A valid schedule that runs one microbatch after another; those of dead workers go to live peers in turn."""
    orders: dict[Worker, list[TimedOperation]] = {}
    turn, now = 0, 0

    def run(kind: Kind, stage: int, k: int, j: int, worker: Worker) -> None:
        nonlocal now
        end = now + problem.duration_ns(kind, stage, worker)
        orders.setdefault(worker, []).append(TimedOperation(Operation(kind, stage, k, j), now, end))
        now = end + problem.stages[stage].transfer_ns

    for k, count in enumerate(problem.microbatches):
        for j in range(count):
            route = []
            for slot in range(problem.num_slots):
                peers = problem.live_pipelines(slot)
                turn += 1
                route.append(Worker(k if k in peers else peers[turn % len(peers)], slot))
            for stage, worker in enumerate(route):
                run(Kind.F, stage, k, j, worker)
            for stage, worker in reversed(list(enumerate(route))):
                run(Kind.I, stage, k, j, worker)
                run(Kind.W, stage, k, j, worker)
    return schedule_from_orders(problem.num_pipelines, problem.num_slots, orders)


def _status(problem: Problem, worker: Worker) -> int:
    return problem.speed_ppm(worker) if problem.is_live(worker) else 0


def _workers(problem: Problem) -> list[Worker]:
    return [Worker(k, s) for k in range(problem.num_pipelines) for s in range(problem.num_slots)]


def _check_relabelling(problem: Problem, found: Relabelling) -> None:
    """Dead plays dead, degraded plays degraded of its speed, homes keep their number of microbatches."""
    canonical = canonical_problem(problem)
    for worker in _workers(problem):
        assert _status(canonical, worker) == _status(problem, found.worker(worker))
    assert [problem.microbatches[k] for k in found.home] == list(canonical.microbatches)


# Keys


@given(_problems())
def test_key_text_round_trips(problem: Problem) -> None:
    """A key's text form is read back as the same key, which hashes the same."""
    key = failure_key(problem)
    again = parse_failure_key(str(key))
    assert again == key
    assert hash(again) == hash(key)


def test_key_text() -> None:
    """The text lists dead counts by slot, then degraded workers by slot and speed."""
    problem = _problem(
        (1,) * 3, 4, (Worker(1, 2),), {Worker(2, 3): 700_000, Worker(0, 3): 500_000, Worker(2, 0): 900_000}
    )
    assert str(failure_key(problem)) == "0,0,1,0;0@900000,3@500000,3@700000"
    assert str(failure_key(_problem((1,), 2))) == "0,0"


@pytest.mark.parametrize(
    "text",
    ["", "0,", "00", "-1", "0, 1", "0;", "0;1@500000", "0;0@0", "0;0@1000000", "0,0;1@5,0@5", "0;0@6,0@5", "0\n", "٣"],
)
def test_key_is_strict(text: str) -> None:
    """Anything but the exact text form is refused."""
    with pytest.raises(FailureSetError):
        parse_failure_key(text)


@pytest.mark.parametrize(
    ("dead", "degraded"), [((), ()), ((0,), ()), ((-1,), ((),)), ((0,), ((7, 5),)), ((0,), ((1_000_000,),))]
)
def test_key_fields_are_checked(dead: tuple[int, ...], degraded: tuple[tuple[int, ...], ...]) -> None:
    """A key with missing slots, negative counts or speeds out of range or order is refused."""
    with pytest.raises(FailureSetError):
        FailureKey(dead=dead, degraded=degraded)


# Canonical problems


def test_canonical_places() -> None:
    """Failures stand on a diagonal by slot, wrap after the last pipeline, and skip a place that is taken."""
    key = parse_failure_key("1,0,2,1;0@500000,3@700000")
    problem = problem_for_key(_problem((1,) * 3, 4), key)
    # Numbers 0..3 are the dead: 0/0, 1/2, 2/2, then 3 mod 3 = 0: 0/3. Number 4 is slot 0's degraded worker: 1/0.
    # Number 5 is slot 3's: 5 mod 3 = 2: 2/3.
    assert problem.dead == {Worker(0, 0), Worker(1, 2), Worker(2, 2), Worker(0, 3)}
    assert problem.speeds_ppm == {Worker(1, 0): 500_000, Worker(2, 3): 700_000}
    # Three slots of two pipelines, 1 and 1 dead, then slot 0's degraded worker: number 2 would stand at 0/0, which is dead.
    taken = problem_for_key(_problem((1,) * 2, 3), parse_failure_key("1,1,0;0@500000"))
    assert taken.speeds_ppm == {Worker(1, 0): 500_000}


@given(_problems())
def test_canonical_is_a_normal_form(problem: Problem) -> None:
    """The canonical problem has the same key, is its own canonical problem, fills whole pipelines and spreads what is left."""
    canonical = canonical_problem(problem)
    assert failure_key(canonical) == failure_key(problem)
    assert canonical_problem(canonical) == canonical
    empty = min(failure_key(problem).dead)
    assert {Worker(k, s) for k in range(empty) for s in range(problem.num_slots)} <= canonical.dead
    left = [w for w in (*canonical.dead, *canonical.speeds_ppm) if w.pipeline >= empty]
    assert len({worker.pipeline for worker in left}) == min(len(left), problem.num_pipelines - empty)


@given(_problems(), st.randoms(use_true_random=False))
def test_canonical_ignores_which_pipelines(problem: Problem, rng: random.Random) -> None:
    """Permuting the workers of every slot leaves the canonical problem as it is."""
    orders = [rng.sample(range(problem.num_pipelines), problem.num_pipelines) for _ in problem.slots]
    dead = tuple(Worker(orders[w.slot][w.pipeline], w.slot) for w in problem.dead)
    speeds = {Worker(orders[w.slot][w.pipeline], w.slot): ppm for w, ppm in problem.speeds_ppm.items()}
    permuted = _problem(problem.microbatches, problem.num_slots, dead, speeds)
    assert canonical_problem(permuted) == canonical_problem(problem)


@pytest.mark.parametrize("text", ["0", "0,4", "0,3;1@500000"])
def test_key_that_does_not_fit_the_job(text: str) -> None:
    """A key with another number of slots, or more failures in a slot than pipelines, is refused."""
    with pytest.raises(FailureSetError):
        problem_for_key(_problem((1,) * 3, 2), parse_failure_key(text))


# Relabellings


@given(_problems(), st.booleans())
def test_relabelling_maps_like_onto_like(problem: Problem, with_racks: bool) -> None:
    """Any failure set, with or without racks, is matched worker for worker, and counts of microbatches are kept."""
    racks = np.add.outer(np.arange(problem.num_pipelines) // 2, np.arange(problem.num_slots)) if with_racks else None
    found = relabelling(problem, racks)
    _check_relabelling(problem, found)
    assert all(problem.is_live(worker) for worker in found.moved_workers)


@given(_problems())
def test_canonical_problem_stays_at_home(problem: Problem) -> None:
    """The relabelling of a problem that is canonical already is the identity."""
    canonical = canonical_problem(problem)
    found = relabelling(canonical)
    assert list(found.home) == list(range(problem.num_pipelines))
    assert found.moved_workers == ()


@given(_problems(max_pipelines=4, max_slots=3), st.booleans())
def test_fewest_workers_move(problem: Problem, with_racks: bool) -> None:
    """No permutation of whole pipelines that keeps microbatch counts would move fewer live workers."""
    canonical = canonical_problem(problem)
    # Under a given home, a live canonical worker can stay exactly where the real one has its status.
    fewest = min(
        sum(
            canonical.is_live(w) and _status(canonical, w) != _status(problem, Worker(home[w.pipeline], w.slot))
            for w in _workers(problem)
        )
        for home in permutations(range(problem.num_pipelines))
        if all(problem.microbatches[k] == problem.microbatches[c] for c, k in enumerate(home))
    )
    racks = np.add.outer(np.arange(problem.num_pipelines) // 2, np.arange(problem.num_slots)) if with_racks else None
    assert len(relabelling(problem, racks).moved_workers) == fewest


@pytest.mark.parametrize("seed", range(5))
def test_large_job(seed: int) -> None:
    """In 128 pipelines of 16 slots, 8 failures move one live worker for each failure that shares a pipeline."""
    rng = random.Random(seed)
    dead = {Worker(rng.randrange(128), rng.randrange(16)) for _ in range(7)}
    # The eighth joins one of them in its pipeline.
    first = min(dead)
    dead.add(Worker(first.pipeline, (first.slot + 1) % 16))
    problem = _problem((2,) * 128, 16, tuple(dead))
    found = relabelling(problem, np.tile(np.arange(128)[:, None] // 4, (1, 16)))
    _check_relabelling(problem, found)
    assert len(found.moved_workers) == len(dead) - len({worker.pipeline for worker in dead})


def test_uneven_counts_swap_one_worker() -> None:
    """A failure in a pipeline whose count differs from pipeline 0's is matched by a swap in its slot alone."""
    problem = _problem((2, 2, 3), 2, (Worker(2, 1),))
    found = relabelling(problem)
    # Canonical 0/1 is dead. Pipeline 2 alone has 3 microbatches, so it stays 2; real 2/1 plays 0/1 and 0/1 plays 2/1.
    assert found.home.tolist() == [0, 1, 2]
    assert found.played_by.tolist() == [[0, 1, 2], [2, 1, 0]]
    assert found.moved_workers == (Worker(0, 1),)


def test_helper_is_taken_from_the_rack_of_the_failure() -> None:
    """The canonical pipeline that helps is played by the pipeline in the failed one's rack, whoever helps."""
    racks = np.tile(np.arange(8)[:, None] // 2, (1, 2))
    problem = _problem((1,) * 8, 2, (Worker(5, 1),))
    # Rack 2 holds pipelines 4 and 5. Canonical 0/1 is dead and by assumption its next peer 1 helps.
    found = relabelling(problem, racks)
    assert (found.home[0], found.home[1]) == (5, 4)
    canonical = canonical_problem(problem)
    schedule = schedule_from_orders(
        8, 2, {Worker(6, 1): [TimedOperation(Operation(Kind.F, 1, 0, 0), 0, 1)], Worker(0, 0): []}
    )
    found = relabelling(problem, racks, schedule=schedule)
    assert (found.home[0], found.home[6]) == (5, 4)
    assert canonical.dead == {Worker(0, 1)}


def test_nearest_rack_where_the_own_is_full() -> None:
    """With one pipeline a rack the helpers come from the racks next door."""
    problem = _problem((2,) * 8, 2, (Worker(5, 0),))
    found = relabelling(problem, np.tile(np.arange(8)[:, None], (1, 2)))
    assert {int(k) for k in found.home[1:3]} == {4, 6}


def test_lender_is_taken_from_the_same_rack() -> None:
    """Where two failures share a pipeline, the worker that takes one's part in it comes from its rack."""
    racks = np.tile(np.arange(6)[:, None] // 2, (1, 3))
    problem = _problem((1,) * 6, 3, (Worker(4, 0), Worker(4, 1)))
    found = relabelling(problem, racks)
    _check_relabelling(problem, found)
    (moved,) = found.moved_workers
    assert moved.pipeline == 5


def test_whole_pipelines_that_failed_stay_what_they_are() -> None:
    """Where every slot lost workers, the first canonical pipelines are empty, and a real pipeline without workers plays one."""
    problem = _problem((2,) * 4, 3, (*(Worker(2, s) for s in range(3)), Worker(0, 1)))
    assert canonical_problem(problem).dead == {Worker(0, 0), Worker(0, 1), Worker(0, 2), Worker(1, 1)}
    found = relabelling(problem)
    assert found.moved_workers == ()
    assert [int(k) for k in found.home[:2]] == [2, 0]
    all_but_one = _problem((2,) * 2, 2, (Worker(1, 0), Worker(1, 1)), {Worker(0, 1): 500_000})
    assert canonical_problem(all_but_one).dead == {Worker(0, 0), Worker(0, 1)}
    assert canonical_problem(all_but_one).speeds_ppm == {Worker(1, 1): 500_000}
    nobody = _problem((1,), 2, (Worker(0, 0), Worker(0, 1)))
    assert canonical_problem(nobody).dead == nobody.dead


@pytest.mark.parametrize(("home", "played_by"), [([0, 0], [[0, 1]]), ([0, 1], [[1, 1]]), ([0, 1], [[0, 1, 2]])])
def test_relabelling_is_checked(home: list[int], played_by: list[list[int]]) -> None:
    """A relabelling that is not a permutation in every slot is refused."""
    with pytest.raises(ProblemError):
        Relabelling(home=np.array(home), played_by=np.array(played_by), dead=frozenset())


# Schedules


@settings(deadline=None)
@given(_problems(plannable=True))
def test_relabelled_schedule_fits_the_real_problem(problem: Problem) -> None:
    """Each operation runs on the worker that plays its part, at the same time, with its home relabelled."""
    canonical = canonical_problem(problem)
    schedule = _one_by_one(canonical)
    found = relabelling(problem)
    real = relabel(schedule, found)
    for worker in _workers(problem):
        expected = [
            (
                t.operation.kind,
                t.operation.stage,
                int(found.home[t.operation.pipeline]),
                t.operation.microbatch,
                t.start_ns,
            )
            for t in schedule.operations(worker)
        ]
        assert expected == [
            (t.operation.kind, t.operation.stage, t.operation.pipeline, t.operation.microbatch, t.start_ns)
            for t in real.operations(found.worker(worker))
        ]


@settings(deadline=None, max_examples=30)
@given(_problems(plannable=True))
def test_relabelled_schedule_keeps_its_period(problem: Problem) -> None:
    """The real schedule reaches the canonical one's steady period."""
    schedule, period_ns = time_schedule(canonical_problem(problem), _one_by_one(canonical_problem(problem)))
    real = relabel(schedule, relabelling(problem, schedule=schedule))
    assert time_schedule(problem, real)[1] == period_ns


@settings(deadline=None)
@given(_problems(plannable=True))
def test_relabelled_schedule_is_valid(problem: Problem) -> None:
    """A valid schedule of the canonical problem becomes a valid one of the real problem, with the same period."""
    schedule, period_ns = time_schedule(canonical_problem(problem), _one_by_one(canonical_problem(problem)))
    require_valid(canonical_problem(problem), schedule, period_ns)
    require_valid(problem, relabel(schedule, relabelling(problem)), period_ns)


def test_one_slot_swapped_keeps_the_data_loader() -> None:
    """Where only slot 1 is swapped, microbatches keep their home, and the swapped worker runs them there."""
    problem = _problem((1, 2), 2, (Worker(1, 1),))
    # Canonical 0/1 is dead, real 1/1 is: pipelines differ in count, so both stay home and slot 1 swaps.
    schedule = _one_by_one(canonical_problem(problem))
    assert schedule.to_text().splitlines() == [
        "0/0: 0F0.0 0I0.0 0W0.0",
        "1/0: 0F1.0 0I1.0 0W1.0 0F1.1 0I1.1 0W1.1",
        "1/1: 1F0.0 1I0.0 1W0.0 1F1.0 1I1.0 1W1.0 1F1.1 1I1.1 1W1.1",
    ]
    assert relabel(schedule, relabelling(problem)).to_text().splitlines() == [
        "0/0: 0F0.0 0I0.0 0W0.0",
        "0/1: 1F0.0 1I0.0 1W0.0 1F1.0 1I1.0 1W1.0 1F1.1 1I1.1 1W1.1",
        "1/0: 0F1.0 0I1.0 0W1.0 0F1.1 0I1.1 0W1.1",
    ]


def test_schedule_of_another_shape_is_refused() -> None:
    """A schedule or rack table of another shape than the problem's is refused, as is a home beyond the last pipeline."""
    problem = _problem((1, 1), 2, (Worker(1, 1),))
    wrong = schedule_from_orders(2, 3, {})
    stray = schedule_from_orders(2, 2, {Worker(0, 0): [TimedOperation(Operation(Kind.F, 0, 2, 0), 0, 1)]})
    for schedule in (wrong, stray):
        with pytest.raises(ProblemError):
            relabelling(problem, schedule=schedule)
        with pytest.raises(ProblemError):
            relabel(schedule, relabelling(problem))
    with pytest.raises(ProblemError):
        relabelling(problem, np.zeros((2, 3), dtype=np.int64))


def test_no_failure() -> None:
    """A problem without failures is canonical and everybody stays at home."""
    problem = _problem((2, 1, 2), 3)
    assert canonical_problem(problem) == problem
    assert relabelling(problem).moved_workers == ()


def test_examples_of_the_page() -> None:
    """Every example of docs/normalization.md gives what it says."""
    page = Path(__file__).parents[2] / "docs" / "normalization.md"
    # Closing fences would read as expected output.
    text = page.read_text(encoding="utf-8").replace("```", "")
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    assert len(test.examples) > 10
    assert doctest.DocTestRunner().run(test).failed == 0

"""Replay: exact periods, peaks and ratios by hand, and agreement with the planner's own timing at random."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.bounds import best_bound
from planner.deadlock import require_deadlock_free
from planner.errors import InvalidScheduleError, OptionError
from planner.lowering import lower
from planner.operation import Worker
from planner.problem import Optimizer, Problem, Slot, Stage
from planner.replay import replay
from planner.schedule import parse_schedule
from planner.timing import time_schedule
from planner.validation import require_valid
from solver_models.list_scheduling import solve
from solver_models.result import SolveOptions
from tests.problems import tiny_problem, tiny_problem_without_length
from tests.random_orders import random_order

COST = Stage(forward_ns=2, input_grad_ns=3, weight_grad_ns=1, transfer_ns=1, activation_bytes=2, weight_grad_bytes=1)
TWO = Problem(stages=(COST, COST), slots=(Slot(stages=(0,)), Slot(stages=(1,))), microbatches=(1,))
ORDER = "0/0: 0F0.0 0I0.0 0W0.0\n0/1: 1F0.0 1I0.0 1W0.0\n"

# F of stage 0 and W of stage 1 take 1 ns, everything else none. From the release of slot 0 to the end of slot 0: 2 (two F).
# From 0 to 1: 4 (F, F, then the two W that worker 0/1 puts off). From 1 to 0: 1 (1I1.0, then 0F1.1 and its backward).
# From 1 to 1: 2 (two W). The cycle from 0 to 1 and back takes (4 + 1) / 2 = 5/2 an iteration, more than 2.
HALVES = Problem(
    stages=(
        Stage(forward_ns=1, input_grad_ns=0, weight_grad_ns=0),
        Stage(forward_ns=0, input_grad_ns=0, weight_grad_ns=1),
    ),
    slots=(Slot(stages=(0,)), Slot(stages=(1,))),
    microbatches=(2, 2),
)
HALVES_ORDER = """\
0/0: 0F0.0 0F0.1 0I0.0 0W0.0 0I0.1 0W0.1
0/1: 1F0.0 1I0.0 1F0.1 1I0.1 1W0.0 1W0.1
1/0: 0F1.0 0I1.0 0F1.1 0I1.1 0W1.0 0W1.1
1/1: 1F1.0 1I1.0 1W1.0 1F1.1 1I1.1 1W1.1
"""


def test_one_microbatch_through_two_slots() -> None:
    """F 2, transfer 1, F 2, I 3, transfer 1, I 3, W 1 are 13 ns; each worker is busy for 6 of them."""
    run = replay(TWO, parse_schedule(ORDER, 1, 2))
    assert (run.period, run.period_ns, run.makespans_ns) == (13, 13, (13,) * 10)
    assert run.utilisation == pytest.approx((6 / 13, 6 / 13))
    assert run.bubble_ratio == pytest.approx(7 / 13)
    assert run.peak_bytes == (2, 2)
    # Slot 0 is released 13 ns apart. Slot 1, released at 0 first and done at 9, is 13 apart from then on: 9 + 9 * 13 = 126.
    assert run.mean_period_ns == pytest.approx((130 + 126) / 2 / 10)


def test_sync_counts_by_optimizer() -> None:
    """Staggered, slot 0 takes 13 + 1 and slot 1 6 + 8, so 14; global, all take 13 and the slowest sync 8."""
    slots = (Slot(stages=(0,), sync_ns=1), Slot(stages=(1,), sync_ns=8))
    schedule = parse_schedule(ORDER, 1, 2)
    assert replay(replace(TWO, slots=slots), schedule).period_ns == 14
    assert replay(replace(TWO, slots=slots, optimizer=Optimizer.GLOBAL), schedule).period_ns == 21


@pytest.mark.parametrize("iterations", [1, 2, 10])
def test_period_between_two_nanoseconds(iterations: int) -> None:
    """The exact period is a fraction, the claimed one rounds it up, and one iteration is enough to find it."""
    run = replay(HALVES, parse_schedule(HALVES_ORDER, 2, 2), iterations=iterations)
    assert (run.period, run.period_ns) == (Fraction(5, 2), 3)
    assert time_schedule(HALVES, parse_schedule(HALVES_ORDER, 2, 2))[1] == 3


def test_peak_follows_the_order() -> None:
    """Two F ahead of the first I hold 2 + 2 bytes; I before the second F leaves 1 + 2."""
    problem = Problem(stages=(COST,), slots=(Slot(stages=(0,)),), microbatches=(2,))
    ahead = parse_schedule("0/0: 0F0.0 0F0.1 0I0.0 0W0.0 0I0.1 0W0.1", 1, 1)
    behind = parse_schedule("0/0: 0F0.0 0I0.0 0F0.1 0W0.0 0I0.1 0W0.1", 1, 1)
    assert (replay(problem, ahead).peak_bytes, replay(problem, behind).peak_bytes) == ((4,), (3,))


def test_degraded_worker_takes_longer() -> None:
    """At 0.3 of full speed 2, 3 and 1 ns become 7, 10 and 4, each rounded up."""
    problem = Problem(stages=(COST,), slots=(Slot(stages=(0,)),), microbatches=(1,), speeds_ppm={Worker(0, 0): 300_000})
    assert replay(problem, parse_schedule("0/0: 0F0.0 0I0.0 0W0.0", 1, 1)).period_ns == 21


def test_jitter_is_seeded_and_leaves_the_exact_period_alone() -> None:
    """The same seed gives the same noisy run, another seed another; ``period`` stays exact."""
    cost = replace(COST, forward_ns=2000, input_grad_ns=3000, weight_grad_ns=1000, transfer_ns=1000)
    problem = replace(TWO, stages=(cost, cost))
    schedule = parse_schedule(ORDER, 1, 2)
    first, again, other = (replay(problem, schedule, jitter=0.2, seed=seed) for seed in (1, 1, 2))
    assert first == again
    assert first.makespans_ns != other.makespans_ns
    assert first.period == 13_000
    # Transfers do not vary, operations by at most a fifth.
    assert all(2_000 + 0.8 * 11_000 <= span <= 2_000 + 1.2 * 11_000 for span in first.makespans_ns)


def test_cycle_of_waits_is_named() -> None:
    """0/0 runs its second F after its first I, 0/1 its first I after its second F: neither goes on."""
    problem = Problem(stages=(COST, COST), slots=(Slot(stages=(0,)), Slot(stages=(1,))), microbatches=(2,))
    # 0/0 runs 0F0.1 after 0I0.0, which needs 1I0.0, which 0/1 runs after 1F0.1, which needs 0F0.1.
    order = "0/0: 0F0.0 0I0.0 0F0.1 0W0.0 0I0.1 0W0.1\n0/1: 1F0.0 1F0.1 1I0.0 1W0.0 1I0.1 1W0.1\n"
    with pytest.raises(InvalidScheduleError) as caught:
        replay(problem, parse_schedule(order, 1, 2))
    assert "worker 0/0 waits to run 0I0.0, which needs 1I0.0 of worker 0/1" in str(caught.value)
    assert "worker 0/1 waits to run 1F0.1, which needs 0F0.1 of worker 0/0" in str(caught.value)


def test_wait_for_an_own_later_operation_is_named() -> None:
    """W ahead of its own I waits for its own worker."""
    order = ORDER.replace("0I0.0 0W0.0", "0W0.0 0I0.0")
    with pytest.raises(InvalidScheduleError, match=r"worker 0/0 waits to run 0W0\.0, which needs 0I0\.0 of worker 0/0"):
        replay(TWO, parse_schedule(order, 1, 2))


def test_incomplete_schedules_are_refused() -> None:
    """Operations that are missing cannot be replayed."""
    with pytest.raises(InvalidScheduleError, match="missing_operation"):
        replay(TWO, parse_schedule(ORDER.replace(" 1W0.0", ""), 1, 2))


@pytest.mark.parametrize(
    "options", [{"iterations": 0}, {"iterations": 1025}, {"jitter": -0.1}, {"jitter": float("nan")}]
)
def test_options_have_ranges(options: dict[str, float]) -> None:
    """What lies outside is refused by name."""
    with pytest.raises(OptionError, match=next(iter(options))):
        replay(TWO, parse_schedule(ORDER, 1, 2), **options)  # type: ignore[arg-type]


def _check_solved(problem: Problem) -> None:
    """A list schedule is valid, replays to its period, meets no bound from below, and its programs run."""
    result = solve(problem, SolveOptions(deadline_s=0.02, seed=0, deterministic=True))
    assert result.schedule is not None
    assert result.period_ns is not None
    require_valid(problem, result.schedule, result.period_ns)
    run = replay(problem, result.schedule, iterations=10)
    assert run.period_ns == result.period_ns
    assert best_bound(problem).value_ns <= run.period
    for slot, peak in zip(problem.slots, run.peak_bytes, strict=True):
        assert slot.capacity_bytes is None or peak <= slot.capacity_bytes
    require_deadlock_free(lower(problem, result.schedule))


def _check_random_order(seed: int) -> None:
    """Any order: timing's period is replay's, its shifted times are valid with it and with no smaller one."""
    rng = random.Random(seed)
    problem = tiny_problem(rng)
    problem = replace(problem, slots=tuple(replace(slot, capacity_bytes=None) for slot in problem.slots))
    order = random_order(problem, rng)
    timed, period_ns = time_schedule(problem, order)
    require_valid(problem, timed, period_ns)
    run = replay(problem, timed, iterations=10)
    assert run.period_ns == period_ns
    # Found from the longest paths where one iteration shows no repetition, and from rest as well as from planned times.
    assert replay(problem, timed, iterations=1).period == replay(problem, order, iterations=50).period == run.period
    if best_bound(problem).value_ns > period_ns:
        raise AssertionError(f"a bound of {best_bound(problem)} above {period_ns}:\n{order.to_text()}")


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_replay_confirms_solved_schedules(seed: int) -> None:
    """Ten iterations of a list schedule have the period that it claims, at or above the bound."""
    _check_solved(tiny_problem(random.Random(seed)))


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=60, deadline=None)
def test_replay_confirms_any_order(seed: int) -> None:
    """Ten iterations of a random order have the period that timing found for it."""
    _check_random_order(seed)


def test_operations_without_length_keep_memory() -> None:
    """With room for one microbatch its W frees the last bytes for the next F, though neither takes time."""
    stage = Stage(forward_ns=0, input_grad_ns=3, weight_grad_ns=0, activation_bytes=3, weight_grad_bytes=1)
    problem = Problem(stages=(stage,), slots=(Slot(stages=(0,), capacity_bytes=3),), microbatches=(3,))
    _check_solved(problem)
    for seed in range(60):
        _check_solved(tiny_problem_without_length(random.Random(seed)))


@pytest.mark.slow
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=1000, deadline=None)
def test_many_operations_without_length_keep_memory(seed: int) -> None:
    """The same for 1,000 problems."""
    _check_solved(tiny_problem_without_length(random.Random(seed)))


@pytest.mark.slow
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=500, deadline=None)
def test_replay_confirms_many_solved_schedules(seed: int) -> None:
    """The same for 500 list schedules."""
    _check_solved(tiny_problem(random.Random(seed)))


@pytest.mark.slow
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=1000, deadline=None)
def test_replay_confirms_many_orders(seed: int) -> None:
    """The same for 1,000 random orders."""
    _check_random_order(seed)

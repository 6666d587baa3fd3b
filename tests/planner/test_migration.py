"""Tests of migrations: the dynamic program, who moves, and whether it pays."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import OptionError, ProblemError, StageLostError
from planner.migration import (
    Migration,
    MigrationAdvice,
    advise_migrations,
    apply_migrations,
    bound_estimate,
    work_estimate,
    worthwhile,
)
from planner.normalization import failure_key
from planner.operation import Worker
from planner.problem import Problem, Slot, Stage


def _problem(
    num_pipelines: int,
    costs_ns: tuple[int, ...],
    dead: tuple[Worker, ...] = (),
    speeds_ppm: dict[Worker, int] | None = None,
) -> Problem:
    """One stage a slot, with F, I and W of the given cost, and 6 microbatches a pipeline."""
    return Problem(
        stages=tuple(Stage(forward_ns=c, input_grad_ns=c, weight_grad_ns=c) for c in costs_ns),
        slots=tuple(Slot(stages=(v,)) for v in range(len(costs_ns))),
        microbatches=(6,) * num_pipelines,
        dead=frozenset(dead),
        speeds_ppm=speeds_ppm or {},
    )


@st.composite
def _cases(draw: st.DrawFn) -> tuple[Problem, list[list[int]], list[int]]:
    """A problem with a live worker in each slot, a cost table (not always rising) and bytes for each slot."""
    num_pipelines, num_slots = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    dead, speeds = [], {}
    for slot in range(num_slots):
        states = [draw(st.sampled_from(["healthy", "healthy", "dead", "slow"])) for _ in range(num_pipelines)]
        if all(state == "dead" for state in states):
            states[draw(st.integers(0, num_pipelines - 1))] = "healthy"
        for pipeline, state in enumerate(states):
            if state == "dead":
                dead.append(Worker(pipeline, slot))
            elif state == "slow":
                speeds[Worker(pipeline, slot)] = 500_000
    costs = [[draw(st.integers(0, 12)) for _ in range(num_pipelines)] for _ in range(num_slots)]
    state_bytes = [draw(st.integers(0, 3)) for _ in range(num_slots)]
    return _problem(num_pipelines, (1,) * num_slots, tuple(dead), speeds), costs, state_bytes


@given(_cases(), st.booleans())
def test_counts_are_the_best_of_all(case: tuple[Problem, list[list[int]], list[int]], level: bool) -> None:
    """Period, bytes and number of moves are the smallest, in this order, of all count vectors with the same sum.

    Or of the level ones alone: no slot may give a failure to one with two fewer, unless that has no room.
    """
    problem, costs, state_bytes = case
    counts = failure_key(problem).dead
    room = [problem.num_pipelines - max(1, len(speeds)) for speeds in failure_key(problem).degraded]
    best = min(
        (
            max(costs[s][c] for s, c in enumerate(new)),
            sum(max(0, old - c) * state_bytes[s] for s, (old, c) in enumerate(zip(counts, new, strict=True))),
            sum(max(0, old - c) for old, c in zip(counts, new, strict=True)),
        )
        for new in product(range(problem.num_pipelines), repeat=problem.num_slots)
        if sum(new) == sum(counts)
        and all(c <= limit for c, limit in zip(new, room, strict=True))
        and not (level and any(c + 2 <= max(new) and c < limit for c, limit in zip(new, room, strict=True)))
    )
    advice = advise_migrations(problem, lambda s, c: costs[s][c], state_bytes, level=level)
    assert (advice.new_period_ns, advice.num_bytes, len(advice.migrations)) == best
    assert advice.saving_ns >= 0 or level
    assert advice.period_ns == max(costs[s][c] for s, c in enumerate(counts))


@given(_cases())
def test_migrations_lead_to_the_counts(case: tuple[Problem, list[list[int]], list[int]]) -> None:
    """Moves can be carried out: healthy workers into dead positions, copying from live peers that stay."""
    problem, costs, state_bytes = case
    advice = advise_migrations(problem, lambda s, c: costs[s][c], state_bytes)
    after = apply_migrations(problem, advice.migrations)
    assert failure_key(after).dead == advice.new_counts
    assert after.speeds_ppm == problem.speeds_ppm
    sources = {migration.source for migration in advice.migrations}
    for migration in advice.migrations:
        assert migration.copy_from.slot == migration.target.slot == migration.slot
        assert problem.is_live(migration.copy_from)
        assert migration.copy_from not in sources
        assert migration.num_bytes == state_bytes[migration.slot]


def test_worked_example() -> None:
    """A failure moves from the costly middle slot to a cheap one, within its pipeline."""
    # Three pipelines of 6 microbatches, F = I = W = 1, 2, 1 in slots 0, 1, 2. One of slot 1 dead: 18 microbatches on two
    # workers, 9 each, 9 * 6 = 54. After moving it to slot 0 (first of the equal ones): slot 1 6 * 6 = 36, slot 0 9 * 3 = 27.
    problem = _problem(3, (1, 2, 1), (Worker(2, 1),))
    advice = advise_migrations(problem, work_estimate(problem), (5, 1000, 5), bandwidth_bytes_per_s=100.0)
    assert (advice.counts, advice.new_counts) == ((0, 1, 0), (0, 0, 1))
    assert (advice.period_ns, advice.new_period_ns, advice.saving_ns) == (54, 36, 18)
    assert advice.migrations == (
        Migration(source=Worker(2, 2), target=Worker(2, 1), copy_from=Worker(0, 1), num_bytes=1000, seconds=10.0),
    )
    assert advice.seconds == 10.0


def test_no_move_without_a_shorter_period() -> None:
    """Equal slots gain nothing, so nothing moves."""
    problem = _problem(3, (1, 1, 1), (Worker(0, 1),))
    advice = advise_migrations(problem, work_estimate(problem), (1, 1, 1))
    assert advice.migrations == ()
    assert advice.new_counts == advice.counts == (0, 1, 0)
    assert advice.seconds is None


def test_fewest_bytes_among_equal_periods() -> None:
    """Of two slots with two failures each, the one with less state gives one up where either alone does not help less."""
    # Costs by count: slots 0 and 1: 0, 5, 9; slot 2: 0, 5. Counts (2, 1, 0) have period 9, and 5 is reached only by (1, 1, 1).
    table = [[0, 5, 9], [0, 5, 9], [0, 5, 9]]
    problem = _problem(3, (1, 1, 1), (Worker(0, 0), Worker(1, 0), Worker(0, 1)))
    advice = advise_migrations(problem, lambda s, c: table[s][c], (7, 3, 1))
    assert advice.new_counts == (1, 1, 1)
    assert advice.num_bytes == 7
    # With slot 0 costing 9 for one failure too, both of its must go: (0, 2, 1) and (0, 1, 2) have 9; (1, 1, 1) also 9. So
    # nothing shortens the period and nothing moves.
    table[0] = [0, 9, 9]
    assert advise_migrations(problem, lambda s, c: table[s][c], (7, 3, 1)).migrations == ()


def test_copies_from_one_peer_queue() -> None:
    """Copies start at once; those that share the only live peer go one after another."""
    # Slot 0 has one live worker of three: 18 * 3 * 10 = 540. Each of slots 1 to 4 bears one failure at 9 * 3 = 27, and slot 0
    # without failures takes 6 * 30 = 180: both failures go, each 100 bytes from worker 2/0 at 10 bytes/s.
    problem = _problem(3, (10, 1, 1), (Worker(0, 0), Worker(1, 0)))
    advice = advise_migrations(problem, work_estimate(problem), (100, 1, 1), bandwidth_bytes_per_s=10)
    assert {migration.copy_from for migration in advice.migrations} == {Worker(2, 0)}
    assert Counter(migration.seconds for migration in advice.migrations) == {10.0: 2}
    assert advice.seconds == 20.0


def test_degraded_workers_stay() -> None:
    """Where every other worker is degraded, nobody can move."""
    problem = _problem(2, (2, 1), (Worker(0, 0),), {Worker(0, 1): 900_000, Worker(1, 1): 900_000})
    advice = advise_migrations(problem, work_estimate(problem), (1, 1))
    assert advice.migrations == ()


def test_lost_slot_stays_lost() -> None:
    """A slot with no live worker has nobody to copy from, so no migration is advised."""
    problem = _problem(2, (1, 1), (Worker(0, 0), Worker(1, 0)))
    with pytest.raises(StageLostError):
        advise_migrations(problem, work_estimate(problem), (1, 1))


def test_options_are_checked() -> None:
    """Bytes for every slot, none negative, and a finite bandwidth above 0 are expected."""
    problem = _problem(2, (1, 1), (Worker(0, 0),))
    cost = work_estimate(problem)
    for state_bytes in ((1,), (1, -1)):
        with pytest.raises(OptionError):
            advise_migrations(problem, cost, state_bytes)
    for bandwidth in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(OptionError):
            advise_migrations(problem, cost, (1, 1), bandwidth_bytes_per_s=bandwidth)


def test_impossible_migrations_are_refused() -> None:
    """A target must be dead and a source healthy, each at most once."""
    problem = _problem(3, (1, 1), (Worker(0, 0), Worker(1, 0)), {Worker(0, 1): 500_000})

    def move(source: Worker, target: Worker) -> Migration:
        return Migration(source=source, target=target, copy_from=Worker(2, 0), num_bytes=1)

    into_live = [move(Worker(1, 1), Worker(2, 0))]
    degraded = [move(Worker(0, 1), Worker(0, 0))]
    twice = [move(Worker(1, 1), Worker(0, 0)), move(Worker(2, 1), Worker(0, 0))]
    same_source = [move(Worker(1, 1), Worker(0, 0)), move(Worker(1, 1), Worker(1, 0))]
    for migrations in (into_live, degraded, twice, same_source):
        with pytest.raises(ProblemError):
            apply_migrations(problem, migrations)


def _advice(period_ns: int, new_period_ns: int, seconds: float | None) -> MigrationAdvice:
    move = Migration(source=Worker(0, 1), target=Worker(0, 0), copy_from=Worker(1, 0), num_bytes=1, seconds=seconds)
    return MigrationAdvice(
        migrations=(move,),
        counts=(1, 0),
        new_counts=(0, 1),
        period_ns=period_ns,
        new_period_ns=new_period_ns,
        seconds=seconds,
    )


@pytest.mark.parametrize(
    ("seconds", "failure_s", "repair_s", "fixed_s", "pays"),
    [
        # From 10 s to 9 s saves a tenth of the sooner horizon.
        (29.0, 300.0, None, 0.0, True),
        (30.0, 300.0, None, 0.0, False),
        (29.0, 300.0, 200.0, 0.0, False),
        (19.0, 300.0, 200.0, 0.0, True),
        (19.0, 300.0, 200.0, 1.0, False),
        (1e6, None, None, 0.0, True),
    ],
)
def test_worthwhile(
    seconds: float, failure_s: float | None, repair_s: float | None, fixed_s: float, pays: bool
) -> None:
    """A migration pays where the share of the horizon it saves exceeds its cost."""
    advice = _advice(10_000_000_000, 9_000_000_000, seconds)
    assert worthwhile(advice, next_failure_s=failure_s, next_repair_s=repair_s, fixed_cost_s=fixed_s) is pays


def test_worthwhile_checks_its_input() -> None:
    """Times out of range and an unknown cost are refused; nothing to move is never worthwhile."""
    advice = _advice(10, 9, 1.0)
    for failure_s, fixed_s in ((0.0, 0.0), (-1.0, 0.0), (float("nan"), 0.0), (1.0, -1.0), (1.0, float("nan"))):
        with pytest.raises(OptionError):
            worthwhile(advice, next_failure_s=failure_s, next_repair_s=None, fixed_cost_s=fixed_s)
    with pytest.raises(OptionError, match="bandwidth"):
        worthwhile(_advice(10, 9, None), next_failure_s=1.0, next_repair_s=None)
    assert not worthwhile(_advice(10, 10, 0.0), next_failure_s=1.0, next_repair_s=None)


def test_work_estimate_with_degraded_workers() -> None:
    """The estimate spreads microbatches so that the slower worker gets fewer."""
    # Two pipelines, 12 microbatches, 3 ns each at full and 6 ns at half speed. In 24 ns: 8 and 4. In 23 ns only 7 and 3.
    problem = _problem(2, (1,), (), {Worker(1, 0): 500_000})
    assert work_estimate(problem)(0, 0) == 24
    # The healthy one dead: 12 * 6.
    assert work_estimate(problem)(0, 1) == 72
    with pytest.raises(ProblemError):
        work_estimate(problem)(0, 2)


def test_work_estimate_of_free_stages() -> None:
    """Stages that cost nothing leave the sync alone."""
    problem = Problem(
        stages=(Stage(forward_ns=0, input_grad_ns=0, weight_grad_ns=0),),
        slots=(Slot(stages=(0,), sync_ns=7),),
        microbatches=(3, 3),
    )
    assert work_estimate(problem)(0, 1) == 7


def test_bound_estimate_sees_memory() -> None:
    """Where memory holds one microbatch, the first slot bears a failure worse than the last, which the work bound misses."""
    # Unit costs, two slots, room for one microbatch. In slot 0 one holds memory for F, then 1F and 1I of slot 1, I, W: 5 ns.
    # Slot 0 takes 9 * 5 = 45 with one of three dead and 6 * 5 = 30 without; slot 1, which waits for nobody after F, 9 * 3 = 27.
    # (The first gradient's way: slot 1 starts 1 ns late, owes 1 ns of W at most, and slot 0 ends 2 ns later: 27 + 2 = 29.)
    stage = Stage(forward_ns=1, input_grad_ns=1, weight_grad_ns=1, activation_bytes=1, weight_grad_bytes=1)
    problem = Problem(
        stages=(stage, stage),
        slots=(Slot(stages=(0,), capacity_bytes=1), Slot(stages=(1,), capacity_bytes=1)),
        microbatches=(6, 6, 6),
        dead=frozenset({Worker(1, 0)}),
    )
    assert advise_migrations(problem, work_estimate(problem), (1, 1)).migrations == ()
    advice = advise_migrations(problem, bound_estimate(problem), (1, 1))
    assert (advice.period_ns, advice.new_period_ns, advice.new_counts) == (45, 30, (0, 1))


def test_bound_estimate_with_degraded_workers() -> None:
    """Degraded workers stay in their slots at every count, and counts that leave nobody live are refused."""
    # One slot: 8 and 4 microbatches as in the work bound, 24 ns; the healthy worker dead, 12 * 6 = 72.
    estimate = bound_estimate(_problem(2, (1, 1), (), {Worker(1, 0): 500_000}))
    assert estimate(0, 1) == 72
    with pytest.raises(ProblemError, match="at most 1"):
        estimate(0, 2)

"""Each bound's value on problems small enough to work out by hand."""

from __future__ import annotations

import pytest

from planner.bounds import best_bound, lower_bounds
from planner.errors import MemoryTooSmallError, StageLostError
from planner.operation import Worker
from planner.problem import Optimizer, Problem, Slot, Stage


def unit(**overrides: object) -> Stage:
    """A stage with F = I = W = 1 ns, 2 bytes before I and 1 after."""
    costs: dict[str, object] = {
        "forward_ns": 1,
        "input_grad_ns": 1,
        "weight_grad_ns": 1,
        "activation_bytes": 2,
        "weight_grad_bytes": 1,
    }
    return Stage(**{**costs, **overrides})  # type: ignore[arg-type]


def pipelines(num_slots: int, microbatches: tuple[int, ...], capacity: int | None = None, **rest: object) -> Problem:
    """Unit stages, one a slot."""
    return Problem(
        stages=(unit(),) * num_slots,
        slots=tuple(Slot(stages=(s,), capacity_bytes=capacity) for s in range(num_slots)),
        microbatches=microbatches,
        **rest,  # type: ignore[arg-type]
    )


def values(problem: Problem, name: str) -> list[int]:
    """Values of one family, in slot order."""
    return [bound.value_ns for bound in lower_bounds(problem) if bound.name == name]


def test_work_counts_the_most_loaded_live_worker() -> None:
    """The work bound is the evenly spread load times F + I + W."""
    # 18 microbatches: slot 2 has two live workers, so 9 each, 27 ns; the other slots 6 each, 18 ns.
    problem = pipelines(4, (6, 6, 6), dead=frozenset({Worker(0, 2)}))
    assert values(problem, "work") == [18, 18, 27, 18]


def test_work_gives_a_slow_worker_fewer_microbatches() -> None:
    """A worker at half speed takes 6 ns a microbatch, so of 3 microbatches it carries 1."""
    # Loads (2, 1) take 6 and 6; (3, 0) takes 9; (1, 2) takes 12.
    problem = pipelines(1, (3, 0), speeds_ppm={Worker(1, 0): 500_000})
    assert values(problem, "work") == [6]


def test_work_adds_sync_and_with_a_global_optimizer_the_slowest() -> None:
    """Staggered slots wait for their own sync, global ones for the slowest."""
    slots = (Slot(stages=(0,), sync_ns=5), Slot(stages=(1,), sync_ns=7))
    staggered = Problem(stages=(unit(), unit()), slots=slots, microbatches=(2,))
    assert values(staggered, "work") == [11, 13]
    together = Problem(stages=(unit(), unit()), slots=slots, microbatches=(2,), optimizer=Optimizer.GLOBAL)
    assert values(together, "work") == [13, 13]


def test_warm_up_idles_until_the_first_gradient_is_back() -> None:
    """With room for two microbatches, slot 0 of three runs two F and idles until the first I."""
    # R = F0 F1 F2 I2 I1 = 5; two F fill 2 of it; 4 microbatches are 12 ns of work: 12 + 3.
    assert values(pipelines(3, (4,), capacity=4), "warm_up")[0] == 15


def test_warm_up_counts_transfers_both_ways() -> None:
    """Each boundary is crossed by an activation and by a gradient."""
    problem = Problem(
        stages=(unit(transfer_ns=10), unit()),
        slots=(Slot(stages=(0,), capacity_bytes=2), Slot(stages=(1,))),
        microbatches=(1,),
    )
    # F0, 10, F1, I1, 10, then I0 and W0: 1 + 22 + 2.
    assert values(problem, "warm_up")[0] == 25


def test_warm_up_waits_for_a_fused_backward_downstream() -> None:
    """A stage that is not splittable sends its gradient only after I and W."""
    problem = Problem(
        stages=(unit(), unit(splittable=False)), slots=(Slot(stages=(0,)), Slot(stages=(1,))), microbatches=(1,)
    )
    # F0, F1, B1 of 2 ns, I0, W0.
    assert values(problem, "warm_up")[0] == 6


def test_tail_adds_to_the_warm_up_where_memory_parts_them() -> None:
    """After the last F the worker has only what memory still holds to do until its gradient is back."""
    # Slot 0 of four, room for 2: R = 7, so 5 ns idle before the first I. RT = 6; beside the last one's 2 bytes, 2 more hold
    # one microbatch before its I (2 ns) or two between I and W (2 ns): 4 ns idle. 4 microbatches: 12 + 5 + 4.
    assert values(pipelines(4, (4,), capacity=4), "tail")[0] == 21


def test_tail_takes_the_larger_idling_where_all_fit_into_memory() -> None:
    """When every F may run before the first I, warm-up and tail may be the same stretch."""
    # R = 7 less 2 F: 5 ns. RT = 6 less the one other's I and W: 4 ns. 2 microbatches: 6 + 5.
    assert values(pipelines(4, (2,)), "tail")[0] == 11


def test_memory_area_weighs_every_phase_by_its_bytes() -> None:
    """A capacity of one microbatch makes them follow each other, with W between."""
    # Slot 0 of two, room for one: F0 F1 I1 I0 W0 = 5 ns each, and no two at once.
    assert values(pipelines(2, (3,), capacity=2), "memory_area")[0] == 15


def test_memory_area_says_nothing_without_memory() -> None:
    """Without a capacity there is no area."""
    assert values(pipelines(2, (3,)), "memory_area") == []


def test_across_slots_sends_the_last_gradient_home() -> None:
    """A middle slot with a failure keeps slot 0 waiting for its last gradient."""
    stages = (unit(activation_bytes=1),) * 4
    slots = tuple(Slot(stages=(s,), capacity_bytes=4) for s in range(4))
    problem = Problem(stages=stages, slots=slots, microbatches=(6, 6, 6), dead=frozenset({Worker(0, 2)}))
    # Slot 2 starts 2 ns after slot 0 and has 27 ns of work, of which 4 W may be owed after its last I; then I1, I0, W0.
    assert values(problem, "across_slots")[1] == 2 + 27 - 4 + 3


@pytest.mark.parametrize(("memory", "reached"), [(4, 29), (5, 28)])
def test_late_gradients_meet_what_is_reached_at_tight_memory(memory: int, reached: int) -> None:
    """The third slot failed, memory for 4 or 5: two workers end in step and three cannot keep up."""
    stages = (unit(activation_bytes=1),) * 4
    slots = tuple(Slot(stages=(s,), capacity_bytes=memory) for s in range(4))
    problem = Problem(stages=stages, slots=slots, microbatches=(6, 6, 6), dead=frozenset({Worker(0, 2)}))
    # At one less nothing but I fits after the last F: 3 I each; 6 I and W are 12 units, of which 6 + 3 + 2 fit (docs/model.md).
    assert best_bound(problem).value_ns == reached
    assert best_bound(problem).name == "late_gradients"


def test_what_is_owed_is_limited_by_memory_at_the_last_forward() -> None:
    """Microbatches still before their I take two bytes each from those that could owe W."""
    problem = pipelines(4, (6, 6, 6), capacity=8, dead=frozenset({Worker(0, 2)}))
    # Slot 2, RT = 2: with x = 3 before their I, none waits, and 2 bytes hold two more: 5 owed. 2 + 27 - 5 + 3.
    assert values(problem, "across_slots")[1] == 27


def test_makespan_of_the_worked_example_with_a_global_optimizer() -> None:
    """ReCycle's worked example with the third slot failed cannot be below 29."""
    problem = pipelines(4, (6, 6, 6), dead=frozenset({Worker(0, 2)}), optimizer=Optimizer.GLOBAL)
    # Two forwards before the slot starts, then 27 ns of work there.
    assert best_bound(problem).value_ns == 29
    assert best_bound(problem).name == "makespan"


@pytest.mark.parametrize("slot", range(4))
def test_worked_example_staggered(slot: int) -> None:
    """ReCycle's worked example, memory unlimited, any worker failed: the work bound, 27, is all there is."""
    assert best_bound(pipelines(4, (6, 6, 6), dead=frozenset({Worker(1, slot)}))).value_ns == 27


def test_v_placement_does_not_count_transfers_inside_a_slot() -> None:
    """At the turn of the V one worker may run both stages, so no transfer is certain there."""
    stages = (unit(transfer_ns=10), unit(transfer_ns=100), unit(transfer_ns=10), unit())
    slots = (Slot(stages=(0, 3)), Slot(stages=(1, 2)))
    problem = Problem(stages=stages, slots=slots, microbatches=(1,))
    # F0 10 F1 F2 10 F3 I3 10 I2 I1 10 I0 W0: 9 operations and four transfers.
    assert values(problem, "warm_up")[0] == 49


def v_of_two(count: int, *, transfer: int = 0, pipelines: int = 1) -> Problem:
    """Two slots as a V, unit costs, memory for four activations."""
    return Problem(
        stages=(unit(transfer_ns=transfer),) * 4,
        slots=(Slot(stages=(0, 3), capacity_bytes=8), Slot(stages=(1, 2), capacity_bytes=8)),
        microbatches=(count,) * pipelines,
    )


def test_what_a_slot_of_two_stages_owes_shares_its_memory_with_the_last_microbatch() -> None:
    """Slot 1 of a V: beside both activations of the last microbatch only two others fit."""
    # F0, 24 ns of work, 4 W owed, of which none waits for the round trip F3 I3; then I0 and W0.
    assert values(v_of_two(4), "across_slots") == [1 + 24 - 4 + 1 + 1]
    # The first backward comes 2 late; the round trip takes 4, and two I fill 2 of it: 2 W fewer are owed.
    assert values(v_of_two(4, transfer=1), "across_slots") == [2 + 24 + 2 - 2 + 2 + 1]


def test_peers_may_hold_the_other_stage_of_the_last_microbatch() -> None:
    """With two live workers in the slot three others fit beside the one stage that is sure to be held."""
    # 2 + 24 + 2 - V + 2 + 1 with V = 4 - (4 - 3).
    assert values(v_of_two(4, transfer=1, pipelines=2), "across_slots") == [2 + 24 + 2 - 3 + 2 + 1]


def test_a_worker_waits_for_its_later_stage() -> None:
    """Two F0, and stage 3 comes three after the first of them."""
    assert values(v_of_two(2), "warm_up")[0] == 12 + 1
    # Two workers with three microbatches: one and a half F0 each, and all the less work.
    uneven = Problem(stages=v_of_two(2).stages, slots=v_of_two(2).slots, microbatches=(2, 1))
    assert values(uneven, "warm_up")[0] == 9 + 2


def test_waiting_adds_to_the_tail_of_a_lone_worker() -> None:
    """A slot of stages 0 and 2 around another: it waits for F2, and again after it for the last gradient."""
    stages = (unit(), unit(forward_ns=4, input_grad_ns=4), unit())
    problem = Problem(
        stages=stages, slots=(Slot(stages=(0, 2), capacity_bytes=4), Slot(stages=(1,))), microbatches=(1,)
    )
    # F0, 4 for F1, F2 I2, W2 within the 4 for I1, I0 W0.
    assert values(problem, "tail")[0] == 6 + 4 + 3


def test_bounds_do_not_depend_on_which_peers_failed_or_where_microbatches_live() -> None:
    """Only failure counts and the global batch matter."""
    one = pipelines(3, (4, 4, 4), capacity=6, dead=frozenset({Worker(0, 1), Worker(2, 0)}))
    other = pipelines(3, (12, 0, 0), capacity=6, dead=frozenset({Worker(1, 1), Worker(1, 0)}))
    assert lower_bounds(one) == lower_bounds(other)


def test_lost_slot_is_refused() -> None:
    """Without a live worker in a slot there is no period to bound."""
    with pytest.raises(StageLostError, match=r"slots \[1\]"):
        lower_bounds(pipelines(2, (1, 1), dead=frozenset({Worker(0, 1), Worker(1, 1)})))


def test_too_little_memory_is_refused() -> None:
    """Memory below one microbatch is named before any bound is computed."""
    with pytest.raises(MemoryTooSmallError, match="1 bytes are missing"):
        best_bound(pipelines(2, (1,), capacity=1))


def test_details_are_single_lines() -> None:
    """Every bound says in one line what made it."""
    for bound in lower_bounds(pipelines(3, (4, 4), capacity=6, optimizer=Optimizer.GLOBAL)):
        assert bound.detail
        assert "\n" not in bound.detail

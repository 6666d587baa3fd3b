"""All bounds of a problem."""

from __future__ import annotations

from planner.bounds.across_slots import across_slots_bound
from planner.bounds.bound import Bound
from planner.bounds.late_gradients import late_gradients_bound
from planner.bounds.makespan import makespan_bound
from planner.bounds.memory_area import memory_area_bound
from planner.bounds.ranks import ranks_bound
from planner.bounds.supply import supply_bound
from planner.bounds.tail import tail_bound
from planner.bounds.view import ProblemView, view_problem
from planner.bounds.warm_up import warm_up_bound
from planner.bounds.work import work_bound
from planner.problem import Problem

FAMILIES = (
    work_bound,
    warm_up_bound,
    tail_bound,
    memory_area_bound,
    across_slots_bound,
    late_gradients_bound,
    makespan_bound,
)
"""One function a family; each takes the view and a slot, and answers ``None`` where it has nothing to say."""


def slot_bounds(problem: Problem) -> tuple[Bound, ...]:
    """Bounds that count the work of one slot each, family by family, in slot order.

    Costs grow with slots, stages and distinct speeds, not with pipelines or microbatches.

    Raises
    ------
    StageLostError
        If a slot has no live worker.
    MemoryTooSmallError
        If a slot's memory does not hold one microbatch.
    """
    problem.require_plannable()
    return _slot_bounds(view_problem(problem))


def _slot_bounds(view: ProblemView) -> tuple[Bound, ...]:
    bounds = (family(view, slot) for family in FAMILIES for slot in view.slots)
    return tuple(bound for bound in bounds if bound is not None)


def lower_bounds(problem: Problem) -> tuple[Bound, ...]:
    """Bound the period of every schedule of a problem from below, by family and slot.

    Those of :func:`slot_bounds`, and those by rank and by supply, which count all slots together and take time in proportion to
    microbatches, stages and the largest load: 40 ms for 128 pipelines of 16 slots and 48 microbatches.

    Parameters
    ----------
    problem
        The instance.

    Returns
    -------
    tuple of Bound
        Family by family, in slot order; those by rank and by supply come last, the latter only where it is the largest.

    Raises
    ------
    StageLostError
        If a slot has no live worker.
    MemoryTooSmallError
        If a slot's memory does not hold one microbatch.

    Examples
    --------
    One worker, F, I and W of 1 ns, two microbatches, room for one: no work is hidden, but the work bound is all there is.

    >>> from planner.problem import Slot, Stage
    >>> one = Problem(stages=(Stage(forward_ns=1, input_grad_ns=1, weight_grad_ns=1, activation_bytes=1),),
    ...               slots=(Slot(stages=(0,), capacity_bytes=1),), microbatches=(2,))
    >>> best_bound(one).value_ns
    6
    """
    problem.require_plannable()
    view = view_problem(problem)
    bounds = list(_slot_bounds(view))
    for family in (ranks_bound, supply_bound):
        bound = family(view, max(bound.value_ns for bound in bounds))
        if bound is not None:
            bounds.append(bound)
    return tuple(bounds)


def best_bound(problem: Problem) -> Bound:
    """Largest of :func:`lower_bounds`; the first of equals, so the simplest argument.

    Raises
    ------
    StageLostError
        If a slot has no live worker.
    MemoryTooSmallError
        If a slot's memory does not hold one microbatch.
    """
    return max(lower_bounds(problem), key=lambda bound: bound.value_ns)

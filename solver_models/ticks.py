"""Time units of the exact models, and what a bound proved in them says in nanoseconds.

Three things stand between a model's integers and nanoseconds (docs/model.md, "Ticks and rounding").

*Tick.* All durations are multiples of their greatest common divisor; where the period would still have more than
:data:`MAX_PERIOD_TICKS` ticks the tick is coarser and durations are rounded down, so that the model stays a relaxation.

*Fractions.* A steady period is a cycle mean: with ``P`` slots staggered it may be any multiple of ``1/q`` tick, ``q <= P``. An
*exact* scale divides the tick by ``lcm(1..P)`` (or down to the nanosecond), so that rounding periods up loses nothing.

*Zero costs.* Ordering and memory need every operation to take time. Each of the ``n`` operations of zero ticks takes one
*sub-tick*, and a tick has ``n + 1`` of them: together they never make up one, so ``b`` sub-ticks proved mean
``b // (n + 1)`` ticks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.operation import Kind, Worker
from planner.problem import Optimizer, Problem

MAX_PERIOD_TICKS = 100_000_000
"""Most ticks a period may have, so that sums of thousands of times and sub-ticks fit 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticks:
    """Scale of one model.

    Parameters
    ----------
    tick_ns
        Length of a tick, in nanoseconds.
    divisor
        Parts a tick is divided into, so that periods between ticks can be told apart.
    subticks
        Sub-ticks of each part: one more than there are operations of zero ticks.
    coarse
        Whether durations were rounded down to ticks.
    fractional
        Whether a period may lie between two units (staggered, several slots, ``divisor`` too small for them).
    """

    tick_ns: int
    divisor: int
    subticks: int
    coarse: bool
    fractional: bool

    def units(self, duration_ns: int) -> int:
        """Duration of anything but an operation, rounded down."""
        return duration_ns // self.tick_ns * self.divisor * self.subticks

    def operation_units(self, duration_ns: int) -> int:
        """Duration of an operation: as :meth:`units`, but at least one sub-tick."""
        return max(1, self.units(duration_ns))

    def time_units(self, time_ns: int) -> int:
        """A point in time, rounded down to parts of a tick."""
        return time_ns * self.divisor // self.tick_ns * self.subticks

    def time_ns(self, units: int) -> int:
        """Nanoseconds of a point in model time; only as fine as the model."""
        return units * self.tick_ns // (self.divisor * self.subticks)

    def period_units(self, period_ns: int) -> int:
        """Most units that the best order can have in the model if its steady period is at most ``period_ns``."""
        return -(-period_ns * self.divisor // self.tick_ns) * self.subticks + self.subticks - 1

    def bound_ns(self, units: int) -> int:
        """Lower bound on the steady period that a lower bound of ``units`` in the model proves.

        Where periods may lie between units or durations were rounded, the order's own cycle mean ``c`` is only known to satisfy
        ``ceil(c) >= units``, so ``c > units - 1``.
        """
        parts = max(0, units) // self.subticks
        if not self.fractional:
            return -(-parts * self.tick_ns // self.divisor)
        return 0 if parts == 0 else (parts - 1) * self.tick_ns // self.divisor + 1

    def error_ns(self, num_operations: int) -> int:
        """Most that rounding durations down can hide of a path through ``num_operations`` operations and their transfers."""
        return 2 * num_operations * self.tick_ns if self.coarse else 0


def durations(problem: Problem) -> set[int]:
    """Every duration of the problem, transfers and synchronisation included, in nanoseconds."""
    result = {slot.sync_ns for slot in problem.slots} | {stage.transfer_ns for stage in problem.stages[:-1]}
    for v, s in enumerate(problem.slot_of_stage):
        kinds = (Kind.F, Kind.I, Kind.W) if problem.stages[v].splittable else (Kind.F, Kind.B)
        for speed_worker in {problem.speed_ppm(Worker(k, s)): Worker(k, s) for k in problem.live_pipelines(s)}.values():
            result |= {problem.duration_ns(kind, v, speed_worker) for kind in kinds}
    return result


def choose_ticks(problem: Problem, floor_ns: int, *, exact: bool) -> Ticks:
    """Choose the scale of a model.

    Parameters
    ----------
    problem
        The instance.
    floor_ns
        A lower bound on its period, from which the number of ticks is estimated.
    exact
        Whether periods between ticks must be told apart.
    """
    unit = math.gcd(*durations(problem)) or 1
    tick = max(unit, floor_ns // MAX_PERIOD_TICKS)
    coarse = tick > unit
    staggered = problem.optimizer is Optimizer.STAGGERED and problem.num_slots > 1
    divisor = 1
    if staggered and exact and not coarse:
        divisor = min(math.lcm(*range(1, problem.num_slots + 1)), tick)
    between = staggered and divisor < tick and divisor % math.lcm(*range(1, problem.num_slots + 1)) != 0
    zero = sum(
        problem.num_microbatches
        for stage in problem.stages
        for cost in (
            (stage.forward_ns, stage.input_grad_ns)
            if stage.splittable
            else (stage.forward_ns, stage.input_grad_ns + stage.weight_grad_ns)
        )
        if cost < tick
    )
    return Ticks(
        tick_ns=tick, divisor=divisor, subticks=zero + 1, coarse=coarse, fractional=between or (coarse and staggered)
    )

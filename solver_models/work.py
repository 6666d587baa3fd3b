"""What the steps of a search cost, in work seconds: see :mod:`solver_models.clock`.

Calibrated on a core of x86_64 with ``python -m benchmarks.calibration``, which prints work beside seconds.
"""

from __future__ import annotations

_LARGE_OPERATIONS = 4_000
"""Beyond it what a node needs no longer lies in the fast caches, and a visit takes the longer the more nodes there are."""


def construction_s(operations: int) -> float:
    """One list schedule."""
    return 20e-6 + 0.33e-6 * operations


def squeezed_s(operations: int) -> float:
    """One schedule squeezed from starts wished for, and these."""
    return 100e-6 + 0.2e-6 * operations


def pooled_s(operations: int, looks: int) -> float:
    """One pooled schedule, for which so many microbatches were looked at in all."""
    return 50e-6 + 0.2e-6 * operations + 1.2e-9 * looks


def naming_s(operations: int, pipelines: int) -> float:
    """New names for a pooled schedule's microbatches and workers."""
    return 1e-3 + 0.1e-6 * operations * pipelines


def network_s(operations: int) -> float:
    """A network, or its reversal."""
    return 0.2e-3 + 0.1e-6 * operations


def timing_s(operations: int) -> float:
    """An order of a constructed schedule, timed exactly."""
    return 1.5e-3 + 0.5e-6 * operations


def bounds_s(operations: int) -> float:
    """All lower bounds."""
    return 5e-3 + 4e-6 * operations


CHILD_S = 0.3
"""A child process that starts and loads its backend."""


def model_s(constraints: int) -> float:
    """A model of CP-SAT, built, and a solve of it that ends at once."""
    return 40e-6 * constraints


def presolve_s(constraints: int) -> float:
    """What CP-SAT does with a whole model before it counts."""
    return 0.35e-3 * constraints


DETERMINISTIC_S = 3.0
"""Each unit that CP-SAT counts of its own work."""


def annealing_s(operations: int, tries: int, visits: int, passed: int) -> float:
    """Moves of annealing, counted by :func:`solver_models.annealing.engine.anneal`, in an order of so many operations."""
    visit_s = 44e-9 + 2.8e-12 * max(0, operations - _LARGE_OPERATIONS)
    return 2e-6 * operations + 0.25e-6 * tries + visit_s * visits + 6e-9 * passed

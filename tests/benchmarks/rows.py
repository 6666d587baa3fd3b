"""Rows of results as tests make them."""

from __future__ import annotations

from typing import Any

from benchmarks.provenance import here
from benchmarks.row import Row, gap_of

SOURCE = here().to_dict()


def make_row(**changes: Any) -> Row:
    """A sound row of the suite ``small``, with some columns changed."""
    columns: dict[str, Any] = {
        "suite": "small",
        "instance": "D2-P2-M2-f0-free",
        "instance_sha256": "0" * 64,
        "operations": 24,
        "solver": "portfolio",
        "seed": 0,
        "deadline_s": 5.0,
        "target_gap": 0.0,
        "status": "optimal",
        "found_by": "list_scheduling",
        "period_ns": 1000,
        "bound_ns": 1000,
        "schedule_sha256": "a" * 64,
        "solve_s": 0.5,
        "check_s": 0.1,
        "at": "2026-01-02T03:04:05+00:00",
        **SOURCE,
    }
    columns |= changes
    return Row(**({"gap": gap_of(columns["period_ns"], columns["bound_ns"])} | columns))

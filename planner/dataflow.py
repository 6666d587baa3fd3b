"""What each row of a schedule needs, takes and holds: the facts that validation, replay and lowering start from.

Solvers and their timing keep their own: the proof side would prove nothing if it repeated their mistakes.

Everything here works on columns with one entry per row of a schedule and is total: a row that names a stage, pipeline or
microbatch the problem does not have takes part in nothing. In row columns ``NO_ROW`` stands where there is no row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.errors import ProblemError
from planner.operation import Kind, Worker
from planner.problem import Problem
from planner.schedule import IntColumn, Schedule

NO_ROW = -1
"""Entry of a row column where there is no row."""

LARGEST = 2**61
"""Sums of times and of bytes stay below this, so that 64-bit arithmetic is exact."""

MAX_ITERATIONS = 1024
"""Most iterations simulated in one run."""

LARGEST_ITERATION_NS = LARGEST // (2 * MAX_ITERATIONS)
"""All durations, transfers and syncs of one iteration add up to less: about 13 days."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dataflow:
    """Costs and inputs of every row of a schedule; int64 columns of shape ``(N,)``.

    Parameters
    ----------
    known
        Whether the row's stage, pipeline and microbatch exist (bool).
    worker
        Worker index ``k * P + s`` of the worker whose row it is.
    microbatch_id
        Number of the microbatch over all pipelines, ``0..G-1``; 0 where not ``known``.
    duration_ns
        Time the operation takes on its worker; 0 where not ``known``.
    input_row
        Row of the operation whose result this one needs: F of the stage before, I or B of the stage after, the last
        stage's own F, W's own I. ``NO_ROW`` where there is none in the problem or in the schedule.
    link_ns
        Transfer time from ``input_row`` to this row; 0 where both run on one worker or there is no input.
    forward_row
        Row of the F of the same stage and microbatch, or ``NO_ROW``.
    """

    known: npt.NDArray[np.bool_]
    worker: IntColumn
    microbatch_id: IntColumn
    duration_ns: IntColumn
    input_row: IntColumn
    link_ns: IntColumn
    forward_row: IntColumn

    @property
    def is_remote(self) -> npt.NDArray[np.bool_]:
        """Whether a row's input comes from another worker, as a message."""
        has_input = self.input_row != NO_ROW
        remote: npt.NDArray[np.bool_] = has_input & (self.worker[self.input_row] != self.worker)
        return remote


def trace_dataflow(problem: Problem, schedule: Schedule) -> Dataflow:
    """Find every row's input and costs.

    Where an operation stands twice, its first row counts as the input of others.

    Raises
    ------
    ProblemError
        If times or bytes are so large that their sums leave 64 bits.
    """
    _require_exact_bytes(problem)
    num_stages, total = problem.num_stages, problem.num_microbatches
    counts = np.array(problem.microbatches, dtype=np.int64)
    kind, stage = schedule.kind, schedule.stage
    known = (stage < num_stages) & (schedule.pipeline < problem.num_pipelines)
    pipeline = np.where(known, schedule.pipeline, 0)
    known &= schedule.microbatch < counts[pipeline]
    stage = np.where(known, stage, 0)
    microbatch_id = np.where(known, (np.cumsum(counts) - counts)[pipeline] + schedule.microbatch, 0)
    worker = schedule.worker_of_row()

    key = stage * total + microbatch_id
    is_forward, is_weight = kind == Kind.F, kind == Kind.W
    is_backward = (kind == Kind.I) | (kind == Kind.B)
    forward_at = _first_rows(key, known & is_forward, num_stages * total)
    backward_at = _first_rows(key, known & is_backward, num_stages * total)
    split_at = _first_rows(key, known & (kind == Kind.I), num_stages * total)

    input_row = np.full(schedule.num_operations, NO_ROW, dtype=np.int64)
    is_last = stage == num_stages - 1
    for chosen, table, shift in (
        (is_forward & (stage > 0), forward_at, -total),
        (is_backward & ~is_last, backward_at, total),
        (is_backward & is_last, forward_at, 0),
        (is_weight, split_at, 0),
    ):
        rows = np.flatnonzero(chosen & known)
        input_row[rows] = table[key[rows] + shift]

    transfers = np.array([min(s.transfer_ns, LARGEST_ITERATION_NS) for s in problem.stages], dtype=np.int64)
    boundary = np.where(is_forward, np.maximum(stage - 1, 0), stage)
    crosses = (input_row != NO_ROW) & (worker[input_row] != worker) & ~is_weight & ~(is_backward & is_last)
    duration_ns = _durations(problem, schedule, known, worker)
    link_ns = np.where(crosses, transfers[boundary], 0)
    _require_exact_times(problem, duration_ns, link_ns)
    return Dataflow(
        known=known,
        worker=worker,
        microbatch_id=microbatch_id,
        duration_ns=duration_ns,
        input_row=input_row,
        link_ns=link_ns,
        forward_row=np.where(known, forward_at[key], NO_ROW),
    )


def held_bytes(problem: Problem, schedule: Schedule) -> IntColumn:
    """Bytes each worker holds after each row's acquisition or release, walking its order; shape ``(N,)``.

    F takes ``activation_bytes``, I gives back all but ``weight_grad_bytes``, W those, B everything. Since an operation
    ends before the next begins, a worker's peak is the largest of its F rows. Rows must be ``known``.
    """
    activation = np.array([s.activation_bytes for s in problem.stages], dtype=np.int64)
    kept = np.array([s.weight_grad_bytes for s in problem.stages], dtype=np.int64)
    change = np.stack([activation, kept - activation, -kept, -activation])[schedule.kind, schedule.stage]
    running = np.concatenate([[0], np.cumsum(change)])
    before_worker = np.repeat(running[schedule.offsets[:-1]], np.diff(schedule.offsets))
    held: IntColumn = running[1:] - before_worker
    return held


def _require_exact_bytes(problem: Problem) -> None:
    largest = sum(s.activation_bytes for s in problem.stages) * problem.num_microbatches
    if largest >= LARGEST:
        raise ProblemError(f"all microbatches together hold {largest} bytes of activations; expected below {LARGEST}")


def _require_exact_times(problem: Problem, duration_ns: IntColumn, link_ns: IntColumn) -> None:
    # Floats, whose sums do not wrap around.
    total = float(duration_ns.sum(dtype=np.float64) + link_ns.sum(dtype=np.float64))
    total += float(sum(slot.sync_ns for slot in problem.slots))
    if total >= LARGEST_ITERATION_NS:
        raise ProblemError(
            f"an iteration's operations, transfers and syncs add up to {total:.3g} ns; "
            f"expected below {LARGEST_ITERATION_NS:.3g} ns"
        )


def _first_rows(key: IntColumn, chosen: npt.NDArray[np.bool_], size: int) -> IntColumn:
    """Table from key to the first chosen row that has it."""
    table = np.full(size, NO_ROW, dtype=np.int64)
    rows = np.flatnonzero(chosen)[::-1]
    table[key[rows]] = rows
    return table


def _durations(problem: Problem, schedule: Schedule, known: npt.NDArray[np.bool_], worker: IntColumn) -> IntColumn:
    """Duration of each known row; one table of kinds by stages for each speed that occurs."""
    # Values cut off at the largest sum are refused by the caller.
    # The schedule's grid may differ from the problem's; its workers are then unknown to the problem and run at full speed.
    speed_idx = np.zeros(schedule.num_pipelines * schedule.num_slots, dtype=np.int64)
    samples: list[Worker | None] = [None]
    seen: dict[int, int] = {}
    for degraded, speed in problem.speeds_ppm.items():
        if degraded.pipeline >= schedule.num_pipelines or degraded.slot >= schedule.num_slots:
            continue
        if speed not in seen:
            seen[speed] = len(samples)
            samples.append(degraded)
        speed_idx[degraded.pipeline * schedule.num_slots + degraded.slot] = seen[speed]
    healthy = Worker(problem.num_pipelines, problem.num_slots)
    tables = np.array(
        [
            [
                [
                    min(problem.duration_ns(kind, v, sample or healthy), LARGEST_ITERATION_NS)
                    for v in range(problem.num_stages)
                ]
                for kind in Kind
            ]
            for sample in samples
        ],
        dtype=np.int64,
    )
    stage = np.where(known, schedule.stage, 0)
    return np.where(known, tables[speed_idx[worker], schedule.kind, stage], 0)

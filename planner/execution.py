"""Whether an order can run at all: each worker goes on until it needs what another has not made yet."""

from __future__ import annotations

import numpy as np
from numba import njit

from planner.dataflow import NO_ROW, Dataflow
from planner.schedule import IntColumn


def find_receivers(flow: Dataflow) -> IntColumn:
    """Row on another worker that uses each row's result, or ``NO_ROW``, shape ``(N,)``; each operation stands once."""
    receiver_row = np.full(len(flow.input_row), NO_ROW, dtype=np.int64)
    receivers = np.flatnonzero(flow.is_remote)
    receiver_row[flow.input_row[receivers]] = receivers
    return receiver_row


@njit(cache=True)
def run_until_blocked(
    offsets: IntColumn, input_row: IntColumn, receiver_row: IntColumn, worker: IntColumn
) -> tuple[IntColumn, IntColumn]:
    """Run each worker until it waits for another; returns the rows run, in that order, and each worker's next row."""
    num_workers = len(offsets) - 1
    position = offsets[:-1].copy()
    sequence = np.empty(len(input_row), np.int64)
    finished = np.zeros(len(input_row), np.bool_)
    num_run = 0
    # A worker is put here when it may go on: once at the start, and each time the row it waits for has run, so that at
    # most two entries are its own.
    ready = np.empty(2 * num_workers, np.int64)
    for w in range(num_workers):
        ready[w] = num_workers - 1 - w
    num_ready = num_workers
    while num_ready > 0:
        num_ready -= 1
        w = ready[num_ready]
        while position[w] < offsets[w + 1]:
            row = position[w]
            if input_row[row] >= 0 and not finished[input_row[row]]:
                break
            finished[row] = True
            sequence[num_run] = row
            num_run += 1
            position[w] += 1
            receiver = receiver_row[row]
            if receiver >= 0 and position[worker[receiver]] == receiver:
                ready[num_ready] = worker[receiver]
                num_ready += 1
    return sequence[:num_run], position

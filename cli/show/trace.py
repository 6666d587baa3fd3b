"""Chrome traces of a plan, for Perfetto: one process a worker, threads for compute, sends and the optimizer.

Timestamps are microseconds from the start of the iteration. Slices on one thread never overlap: transfers that are under
way at the same time get lanes of their own. Arrows lead from each transfer to the operation that waits for it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from planner.dataflow import trace_dataflow
from planner.formats.whole_file import whole_file
from planner.operation import Kind, Worker
from planner.plan import Plan
from planner.problem import Optimizer

_COMPUTE, _OPTIMIZER, _SEND = 0, 1, 2
_COLOURS = {Kind.F: "thread_state_running", Kind.I: "thread_state_iowait", Kind.W: "good", Kind.B: "bad"}

Event = dict[str, Any]


def write_trace(plan: Plan, workers: Sequence[Worker], path: Path) -> None:
    """Write the trace of some workers; the file appears whole or not at all.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    with whole_file(path, durable=False) as file:
        file.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
        for number, event in enumerate(trace_events(plan, workers)):
            file.write(
                (",\n" if number else "").encode("ascii") + json.dumps(event, separators=(",", ":")).encode("ascii")
            )
        file.write(b"\n]}\n")


def trace_events(plan: Plan, workers: Sequence[Worker]) -> Iterator[Event]:
    """Events of the trace, worker by worker.

    Parameters
    ----------
    plan
        A valid plan.
    workers
        Workers to include; arrows are drawn between these only.
    """
    origin = int(plan.schedule.start_ns.min())
    indices = {worker.pipeline * plan.problem.num_slots + worker.slot for worker in workers}
    sync_starts = _sync_starts(plan)
    sends = _sends(plan, indices)
    for order, worker in enumerate(workers):
        pid = _pid(plan, worker)
        yield from _names(plan, worker, pid, order)
        if worker in plan.problem.dead:
            continue
        yield from _compute(plan, worker, pid, origin)
        sync_ns = plan.problem.slots[worker.slot].sync_ns
        if sync_ns:
            start_us = (sync_starts[worker.slot] - origin) / 1000
            yield _slice("all-reduce and optimizer", pid, _OPTIMIZER, start_us, sync_ns / 1000, {})
        yield from _transfers(plan, sends.get(pid - 1, []), pid, origin)
        yield from _memory(plan, worker, pid, origin)


def _pid(plan: Plan, worker: Worker) -> int:
    return worker.pipeline * plan.problem.num_slots + worker.slot + 1


def _names(plan: Plan, worker: Worker, pid: int, order: int) -> Iterator[Event]:
    down = " (down)" if worker in plan.problem.dead else ""
    ranks = f", ranks {plan.worker_ranks[pid - 1]}" if plan.worker_ranks else ""
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": f"worker {worker}{down}{ranks}"}}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": order}}
    for tid, name in ((_COMPUTE, "compute"), (_OPTIMIZER, "optimizer")):
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}


def _compute(plan: Plan, worker: Worker, pid: int, origin: int) -> Iterator[Event]:
    for timed in plan.schedule.operations(worker):
        operation = timed.operation
        details = {
            "stage": operation.stage,
            "microbatch": f"{operation.pipeline}.{operation.microbatch}",
            "rerouted": operation.pipeline != worker.pipeline,
        }
        start_us, duration_us = (timed.start_ns - origin) / 1000, (timed.end_ns - timed.start_ns) / 1000
        yield _slice(str(operation), pid, _COMPUTE, start_us, duration_us, details) | {
            "cname": _COLOURS[operation.kind],
            "cat": operation.kind.name,
        }


def _sends(plan: Plan, indices: set[int]) -> dict[int, list[tuple[int, int, int]]]:
    """For each sending worker index its ``(sending row, receiving row, transfer ns)`` by sending time."""
    flow = trace_dataflow(plan.problem, plan.schedule)
    receivers = np.flatnonzero(flow.is_remote)
    senders = flow.input_row[receivers]
    by_time = np.argsort(plan.schedule.end_ns[senders], kind="stable")
    found: dict[int, list[tuple[int, int, int]]] = {}
    for row, receiver in zip(senders[by_time].tolist(), receivers[by_time].tolist(), strict=True):
        source, target = int(flow.worker[row]), int(flow.worker[receiver])
        if source in indices and target in indices:
            found.setdefault(source, []).append((row, receiver, int(flow.link_ns[receiver])))
    return found


def _transfers(plan: Plan, sends: list[tuple[int, int, int]], pid: int, origin: int) -> Iterator[Event]:
    schedule, slots = plan.schedule, plan.problem.num_slots
    lane_free: list[int] = []
    for row, receiver, link_ns in sends:
        end = int(schedule.end_ns[row])
        target = int(np.searchsorted(schedule.offsets, receiver, side="right")) - 1
        name = f"to {schedule.worker_at(target)}: {schedule.operation(receiver)}"
        flow = {"cat": "transfer", "name": "transfer", "id": receiver}
        if link_ns:
            lane = next((n for n, free in enumerate(lane_free) if free <= end), len(lane_free))
            if lane == len(lane_free):
                lane_free.append(0)
                label = "send" if lane == 0 else f"send {lane + 1}"
                yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": _SEND + lane, "args": {"name": label}}
            lane_free[lane] = end + link_ns
            start_us = (end - origin) / 1000
            yield _slice(name, pid, _SEND + lane, start_us, link_ns / 1000, {"slot": target % slots})
            yield {"ph": "s", "pid": pid, "tid": _SEND + lane, "ts": start_us, **flow}
        else:
            start_us = (int(schedule.start_ns[row]) - origin) / 1000
            yield {"ph": "s", "pid": pid, "tid": _COMPUTE, "ts": start_us, **flow}
        arrival_us = (int(schedule.start_ns[receiver]) - origin) / 1000
        yield {"ph": "f", "bp": "e", "pid": target + 1, "tid": _COMPUTE, "ts": arrival_us, **flow}


def _memory(plan: Plan, worker: Worker, pid: int, origin: int) -> Iterator[Event]:
    """Counter of the activation bytes a worker holds, wherever it changes."""
    changes: dict[int, int] = {}
    for timed in plan.schedule.operations(worker):
        stage = plan.problem.stages[timed.operation.stage]
        kept = stage.weight_grad_bytes
        when, change = {
            Kind.F: (timed.start_ns, stage.activation_bytes),
            Kind.I: (timed.end_ns, kept - stage.activation_bytes),
            Kind.W: (timed.end_ns, -kept),
            Kind.B: (timed.end_ns, -stage.activation_bytes),
        }[timed.operation.kind]
        changes[when] = changes.get(when, 0) + change
    held = 0
    for when in sorted(changes):
        if changes[when]:
            held += changes[when]
            yield {
                "ph": "C",
                "name": "activation bytes",
                "pid": pid,
                "tid": 0,
                "ts": (when - origin) / 1000,
                "args": {"bytes": held},
            }


def _sync_starts(plan: Plan) -> list[int]:
    slot = plan.schedule.worker_of_row() % plan.problem.num_slots
    ends = [int(plan.schedule.end_ns[slot == s].max()) for s in range(plan.problem.num_slots)]
    return [max(ends)] * len(ends) if plan.problem.optimizer is Optimizer.GLOBAL else ends


def _slice(name: str, pid: int, tid: int, start_us: float, duration_us: float, details: Event) -> Event:
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": start_us, "dur": duration_us, "args": details}

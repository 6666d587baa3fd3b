"""The network of operations that the compiled schedulers run on: flat arrays, one node per operation.

Node ``(m * V + v) * 3 + kind`` is the F (0), I (1) or W (2) of global microbatch ``m`` at stage ``v``; where a stage cannot
split its backward, its I node is the fused B and its W node is empty. A node has at most two successors, which holds in
reversed time too, so one scheduler serves both directions (:func:`reverse`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from planner.operation import Kind
from planner.problem import Problem, scaled_ns
from planner.schedule import IntColumn, Schedule

NO_NODE = -1
UNLIMITED_BYTES = 2**62
"""Stands for "memory does not bind" inside the compiled loops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Nodes, their successors and what they take and give, for one routing.

    ``N = 3 * V * sum(M)`` nodes, ``K`` workers. All columns are int64 of shape ``(N,)`` unless said otherwise.

    Parameters
    ----------
    num_slots, num_stages, chunks
        ``P``, ``V`` and the most stages a slot holds.
    worker
        Worker index ``k * P + s`` a node runs on; -1 for an empty node.
    queue
        Which of a worker's ready queues holds the node: ``kind * chunks + position of its stage in the slot``.
    duration
        Nanoseconds on that worker.
    successor, lag
        Shape ``(N, 2)``: nodes that need this one's result and the transfer time to them; -1 for none.
    num_predecessors
        How many nodes this one waits for.
    acquire, release
        Bytes taken at the start and given back at the end.
    reserve
        Bytes that must stay free after ``acquire``, so that a microbatch already admitted can always finish.
    capacity
        Shape ``(K,)``: bytes of each worker.
    """

    num_slots: int
    num_stages: int
    chunks: int
    worker: IntColumn
    queue: IntColumn
    duration: IntColumn
    successor: IntColumn
    lag: IntColumn
    num_predecessors: IntColumn
    acquire: IntColumn
    release: IntColumn
    reserve: IntColumn
    capacity: IntColumn

    @property
    def num_workers(self) -> int:
        """``K``, live or dead."""
        return len(self.capacity)

    def loads_ns(self) -> IntColumn:
        """Busy time of each worker, shape ``(K,)``."""
        real = self.worker >= 0
        loads: IntColumn = np.bincount(
            self.worker[real], weights=self.duration[real].astype(np.float64), minlength=self.num_workers
        ).astype(np.int64)
        return loads


def build_network(problem: Problem, routing: IntColumn) -> Network:
    """Build the network of a problem under a routing.

    Parameters
    ----------
    problem
        The instance.
    routing
        Shape ``(sum(M), V)``: pipeline whose worker runs each microbatch at each stage.
    """
    total, stages, slots = problem.num_microbatches, problem.num_stages, problem.num_slots
    slot_of = np.array(problem.slot_of_stage, dtype=np.int64)
    split = np.array([stage.splittable for stage in problem.stages])
    held = np.array([stage.activation_bytes for stage in problem.stages], dtype=np.int64)
    kept = np.where(split, [stage.weight_grad_bytes for stage in problem.stages], 0).astype(np.int64)
    transfer = np.array([stage.transfer_ns for stage in problem.stages], dtype=np.int64)

    worker = np.repeat((routing * slots + slot_of)[:, :, None], 3, axis=2)
    worker[:, ~split, Kind.W] = -1
    node = np.arange(total * stages * 3, dtype=np.int64).reshape(total, stages, 3)
    successor = np.full((total, stages, 3, 2), NO_NODE, dtype=np.int64)
    lag = np.zeros((total, stages, 3, 2), dtype=np.int64)
    successor[:, :-1, Kind.F, 0] = node[:, 1:, Kind.F]
    successor[:, -1, Kind.F, 0] = node[:, -1, Kind.I]
    successor[:, 1:, Kind.I, 0] = node[:, :-1, Kind.I]
    crosses = worker[:, :-1, Kind.F] != worker[:, 1:, Kind.F]
    lag[:, :-1, Kind.F, 0] = np.where(crosses, transfer[:-1], 0)
    lag[:, 1:, Kind.I, 0] = np.where(crosses, transfer[:-1], 0)
    successor[:, split, Kind.I, 1] = node[:, split, Kind.W]

    later = np.array([sum(held[u] for u in problem.slots[s].stages if u > v) for v, s in enumerate(slot_of)])
    position = np.array([problem.slots[s].stages.index(v) for v, s in enumerate(slot_of)])
    chunks = max(len(slot.stages) for slot in problem.slots)
    capacities = [UNLIMITED_BYTES if slot.capacity_bytes is None else slot.capacity_bytes for slot in problem.slots]

    def spread(by_kind: npt.ArrayLike) -> IntColumn:
        """Repeat a (3, V) table for every microbatch, node order."""
        table = np.asarray(by_kind, dtype=np.int64).T
        return np.broadcast_to(table, (total, stages, 3)).reshape(-1).copy()

    zero = np.zeros(stages, dtype=np.int64)
    return Network(
        num_slots=slots,
        num_stages=stages,
        chunks=chunks,
        worker=worker.reshape(-1),
        queue=spread([position, chunks + position, 2 * chunks + position]),
        duration=_durations(problem, worker, split).reshape(-1),
        successor=successor.reshape(-1, 2),
        lag=lag.reshape(-1, 2),
        num_predecessors=_count_predecessors(successor.reshape(-1, 2)),
        acquire=spread([held, zero, zero]),
        release=spread([zero, held - kept, kept]),
        reserve=spread([later, zero, zero]),
        capacity=np.tile(np.array(capacities, dtype=np.int64), problem.num_pipelines),
    )


def _durations(problem: Problem, worker: IntColumn, split: npt.NDArray[np.bool_]) -> IntColumn:
    """Duration of each node on its worker, shape ``(sum(M), V, 3)``; empty nodes take 0."""
    cost = np.array([[s.forward_ns, s.input_grad_ns, s.weight_grad_ns] for s in problem.stages], dtype=np.int64)
    duration = np.broadcast_to(cost, worker.shape).copy()
    for slow, speed in problem.speeds_ppm.items():
        chosen = worker == slow.pipeline * problem.num_slots + slow.slot
        # An empty W node carries no worker; what B takes is added below from the stage's own scaled costs.
        chosen[:, :, Kind.W] |= chosen[:, :, Kind.I]
        scaled = np.array([[scaled_ns(c, speed) for c in row] for row in cost.tolist()], dtype=np.int64)
        duration[chosen] = np.broadcast_to(scaled, worker.shape)[chosen]
    fused = ~split
    duration[:, fused, Kind.I] += duration[:, fused, Kind.W]
    duration[:, fused, Kind.W] = 0
    return duration


def _count_predecessors(successor: IntColumn) -> IntColumn:
    targets = successor[successor >= 0]
    return np.bincount(targets, minlength=len(successor)).astype(np.int64)


def sources_of(network: Network) -> tuple[IntColumn, IntColumn]:
    """The node whose result each node needs, -1 for none, and the transfer time from there, shape ``(N,)`` each.

    A node needs one other result at most: F that of the stage before, I that of the stage behind or of the last F, W its own I's.
    """
    source = np.full(len(network.worker), -1, dtype=np.int64)
    lag = np.zeros(len(network.worker), dtype=np.int64)
    for j in range(network.successor.shape[1]):
        nodes = np.flatnonzero(network.successor[:, j] >= 0)
        source[network.successor[nodes, j]], lag[network.successor[nodes, j]] = nodes, network.lag[nodes, j]
    return source, lag


def reverse(network: Network) -> Network:
    """Turn time around: successors become predecessors, memory taken becomes memory given back.

    In reversed time W takes what it kept, I the rest of the activation, and F gives all of it back. An admitted W reserves
    the rest of its slot's activations for one microbatch, so a microbatch in flight can always finish.
    """
    count = len(network.worker)
    flat = network.successor.reshape(-1)
    sources = np.repeat(np.arange(count, dtype=np.int64), 2)[flat >= 0]
    targets, lags = flat[flat >= 0], network.lag.reshape(-1)[flat >= 0]
    order = np.argsort(targets, kind="stable")
    targets, sources, lags = targets[order], sources[order], lags[order]
    rank = np.arange(len(targets)) - np.searchsorted(targets, targets)
    successor = np.full((count, 2), NO_NODE, dtype=np.int64)
    lag = np.zeros((count, 2), dtype=np.int64)
    successor[targets, rank] = sources
    lag[targets, rank] = lags
    shape = (-1, network.num_stages, 3)
    held = network.acquire.reshape(shape)[:, :, Kind.F]
    later = network.reserve.reshape(shape)[:, :, Kind.F]
    slot_total = (held + later)[0]
    first_of_slot: dict[int, int] = {}
    for v, s in enumerate(network.worker.reshape(shape)[0, :, Kind.F] % network.num_slots):
        first_of_slot[int(s)] = max(first_of_slot.get(int(s), 0), int(slot_total[v]))
    whole = np.array([first_of_slot[int(s)] for s in network.worker.reshape(shape)[0, :, Kind.F] % network.num_slots])
    reserve = np.zeros((count // 3 // network.num_stages, network.num_stages, 3), dtype=np.int64)
    release = network.release.reshape(shape)
    reserve[:, :, Kind.I] = later
    reserve[:, :, Kind.W] = whole - release[:, :, Kind.W]
    return replace(
        network,
        successor=successor,
        lag=lag,
        num_predecessors=_count_predecessors(successor),
        acquire=network.release,
        release=network.acquire,
        reserve=reserve.reshape(-1),
    )


def order_by_turn(network: Network, turn: IntColumn) -> IntColumn:
    """Nodes by worker, then in the order in which it runs them; empty nodes are left out.

    Parameters
    ----------
    turn
        Shape ``(N,)``: how many nodes were started before each.
    """
    nodes = np.flatnonzero(network.worker >= 0)
    ordered: IntColumn = nodes[np.lexsort((turn[nodes], network.worker[nodes]))]
    return ordered


def schedule_in_order(problem: Problem, network: Network, ordered: IntColumn) -> Schedule:
    """Turn nodes, worker by worker in the order they run, into a schedule whose times are all 0."""
    kind = ordered % 3
    stage = ordered // 3 % problem.num_stages
    counts = np.bincount(network.worker[ordered], minlength=network.num_workers)
    home = np.concatenate([[0], np.cumsum(problem.microbatches)])
    microbatch = ordered // 3 // problem.num_stages
    pipeline = np.searchsorted(home, microbatch, side="right") - 1
    split = np.array([s.splittable for s in problem.stages])
    zero = np.zeros(len(ordered), dtype=np.int64)
    return Schedule(
        num_pipelines=problem.num_pipelines,
        num_slots=problem.num_slots,
        offsets=np.concatenate([[0], np.cumsum(counts)]),
        kind=np.where((kind == Kind.I) & ~split[stage], Kind.B, kind),
        stage=stage,
        pipeline=pipeline,
        microbatch=microbatch - home[pipeline],
        start_ns=zero,
        end_ns=zero,
    )


def nodes_of(problem: Problem, schedule: Schedule) -> IntColumn:
    """Network node of each row of a schedule, shape ``(rows,)``; B counts as the I of a stage that cannot split."""
    home = np.concatenate([[0], np.cumsum(problem.microbatches)])
    kind = np.where(schedule.kind == Kind.B, int(Kind.I), schedule.kind)
    nodes: IntColumn = (
        (home[schedule.pipeline] + schedule.microbatch) * problem.num_stages + schedule.stage
    ) * 3 + kind
    return nodes

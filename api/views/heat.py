"""Which node hurts most, and how many more failures a job can take, by the plans that are in the store.

What is counted is the loss of one node more, rerouted in place; migrations may still help, which a what-if tells.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import combinations_with_replacement

from api.jobs.drafting import Base
from api.jobs.loaded import LoadedJob
from api.jobs.positions import empty_positions
from api.store import Store
from api.views.forms import Heat, HeatGroup
from api.views.spare import spare_workers
from planner.failure_key import FailureKey
from planner.failure_state import to_failure_set
from planner.failures import FailureSet
from planner.job import Job, OptimizerState
from planner.operation import Worker
from planner.units import ns_to_us

MAX_READY = 3
"""Most further failures of which it is looked whether all plans are in the store."""
_MAX_KEYS = 20_000


@dataclass(slots=True)
class _Loss:
    """Nodes whose loss leads to the same failures per slot."""

    key: FailureKey
    num_workers: int
    slots: list[int]
    nodes: list[int] = field(default_factory=list)


def heat_of(store: Store, loaded: LoadedJob, base: Base, search_s: float) -> Heat:
    """Work out what the loss of each node would lead to.

    Parameters
    ----------
    store
        Where plans are looked for.
    loaded, base
        The job, and its current epoch.
    search_s
        Seconds to search for a plan that is not in the store when it is needed, positive.
    """
    job = loaded.job
    failures = to_failure_set(job, base.state)
    counts = _Counts.of(job, failures, base)
    losses = _losses(job, counts, failures)
    periods = store.template_periods(loaded.sha256, [str(loaded.fault_free_key), *(str(loss.key) for loss in losses)])
    fault_free_ns = periods.get(str(loaded.fault_free_key))
    is_sharded = job.optimizer_state is OptimizerState.SHARDED
    groups = [_group(job, loss, periods.get(str(loss.key)), fault_free_ns, is_sharded=is_sharded) for loss in losses]
    order = sorted(range(len(groups)), key=lambda n: _badness(groups[n]), reverse=True)
    node_groups: list[int | None] = [None] * job.topology.num_nodes
    for rank, n in enumerate(order):
        for node in losses[n].nodes:
            node_groups[node] = rank
    certain = spare_workers(job, failures.dead, base.moved)
    return Heat(
        job=base.body.job,
        epoch=base.epoch,
        groups=[groups[n] for n in order],
        node_groups=node_groups,
        certain=certain,
        ready=_num_ready(store, loaded, counts, min(certain, MAX_READY)),
        search_s=search_s,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    """Dead workers and speeds of slow ones of each slot, by position, and who stands where."""

    dead: tuple[int, ...]
    slow: dict[Worker, int]
    moved: dict[Worker, Worker]

    @classmethod
    def of(cls, job: Job, failures: FailureSet, base: Base) -> _Counts:
        dead = [0] * job.num_slots
        for position in empty_positions(failures.dead, base.moved):
            dead[position.slot] += 1
        return cls(dead=tuple(dead), slow=dict(failures.speeds_ppm), moved=base.moved)

    def key(self, lost: frozenset[Worker]) -> FailureKey:
        """Failure key once these live workers are down too."""
        dead = list(self.dead)
        for worker in lost:
            dead[self.moved.get(worker, worker).slot] += 1
        degraded: list[list[int]] = [[] for _ in dead]
        for worker, ppm in self.slow.items():
            if worker not in lost:
                degraded[self.moved.get(worker, worker).slot].append(ppm)
        return FailureKey(dead=tuple(dead), degraded=tuple(tuple(sorted(speeds)) for speeds in degraded))


def _losses(job: Job, counts: _Counts, failures: FailureSet) -> list[_Loss]:
    """Nodes grouped by what their loss leads to."""
    per_node = job.topology.gpus_per_node
    workers_on: dict[int, set[int]] = {}
    for index, gpus in enumerate((job.layout.worker_gpus // per_node).tolist()):
        for node in set(gpus):
            workers_on.setdefault(node, set()).add(index)
    found: dict[tuple[tuple[int, int], ...] | frozenset[Worker], _Loss] = {}
    for node, indices in sorted(workers_on.items()):
        workers = (Worker(index // job.num_slots, index % job.num_slots) for index in indices)
        lost = frozenset(worker for worker in workers if worker not in failures.dead)
        if not lost:
            continue
        per_slot = Counter(counts.moved.get(worker, worker).slot for worker in lost)
        # Which workers they are matters only where one of them is slow: then it is slow no more.
        name = lost if any(worker in counts.slow for worker in lost) else tuple(sorted(per_slot.items()))
        loss = found.get(name)
        if loss is None:
            loss = _Loss(key=counts.key(lost), num_workers=len(lost), slots=sorted(per_slot))
            found[name] = loss
        loss.nodes.append(node)
    return list(found.values())


def _group(job: Job, loss: _Loss, period_ns: int | None, fault_free_ns: int | None, *, is_sharded: bool) -> HeatGroup:
    if any(count >= job.num_pipelines for count in loss.key.dead):
        outcome = "stage_lost"
    elif is_sharded:
        outcome = "optimizer_shard_lost"
    else:
        outcome = "not_ready" if period_ns is None else "ready"
    kept = fault_free_ns / period_ns if period_ns and fault_free_ns is not None else None
    has_period = outcome == "ready" and period_ns is not None
    return HeatGroup.model_validate(
        {
            "failure_key": str(loss.key),
            "outcome": outcome,
            "num_nodes": len(loss.nodes),
            "num_workers": loss.num_workers,
            "slots": loss.slots,
            "period_us": ns_to_us(period_ns) if has_period and period_ns is not None else None,
            "throughput_kept": kept if has_period else None,
        }
    )


def _badness(group: HeatGroup) -> tuple[int, float, int]:
    rank = {"stage_lost": 3, "optimizer_shard_lost": 2, "not_ready": 0, "ready": 1}[group.outcome]
    return (rank, group.period_us or 0.0, group.num_workers)


def _num_ready(store: Store, loaded: LoadedJob, counts: _Counts, most: int) -> int:
    """Largest number of further failures, up to ``most``, for which every plan is in the store wherever they happen."""
    slots = range(loaded.job.num_slots)
    for number in range(1, most + 1):
        keys: list[str] = []
        for chosen in combinations_with_replacement(slots, number):
            if len(keys) >= _MAX_KEYS:
                return number - 1
            more = Counter(chosen)
            dead = tuple(count + more[slot] for slot, count in enumerate(counts.dead))
            keys.append(str(FailureKey(dead=dead, degraded=counts.key(frozenset()).degraded)))
        if len(store.template_periods(loaded.sha256, keys)) < len(keys):
            return number - 1
    return most

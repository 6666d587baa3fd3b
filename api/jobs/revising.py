"""What a revision of a job leaves in place: who still stands where, and who holds what its position needs."""

from __future__ import annotations

from api.jobs.positions import Moved
from planner.job import Job
from planner.layout import OrderedLayout
from planner.operation import Worker


def carry_places(
    old: Job, new: Job, dead: frozenset[Worker], moved: Moved
) -> tuple[frozenset[Worker], dict[Worker, Worker]]:
    """Dead workers and moves of an epoch of the old job, as the new job would have them just before its first epoch.

    A worker holds on to what it has where it is made of the same GPUs of the same nodes, split up in the same way, and its
    slot holds the same stages. All others, and those that only the new job has, hold nothing: they count as dead before, so that
    they are listed among those that have to load.

    Parameters
    ----------
    old, new
        The job before and after.
    dead, moved
        Of the epoch before.

    Returns
    -------
    dead
        Workers of the new job that hold nothing.
    moved
        Moves whose worker and position are the same in both.
    """
    same = _same_workers(old, new)
    every = frozenset(Worker(k, s) for k in range(new.num_pipelines) for s in range(new.num_slots))
    slots = {worker.slot for worker in same}
    kept = {
        worker: position
        for worker, position in moved.items()
        if worker in same and position.slot in slots and new.has_worker(position)
    }
    # Who stood at a position that is none any more holds nothing of its home.
    lost = frozenset(worker for worker in moved if worker not in kept)
    return (dead & every) | (every - same) | (lost & every), kept


def is_same_layout(old: Job, new: Job) -> bool:
    """Whether both jobs have the same workers, each with what it held."""
    num_workers = new.num_pipelines * new.num_slots
    return old.num_pipelines * old.num_slots == num_workers == len(_same_workers(old, new))


def _same_workers(old: Job, new: Job) -> frozenset[Worker]:
    """Workers that hold the same in both jobs."""
    if _split(old) != _split(new) or old.num_stages != new.num_stages:
        return frozenset()
    num_slots = min(old.num_slots, new.num_slots)
    slots = [s for s in range(num_slots) if old.slot_stages[s] == new.slot_stages[s]]
    pipelines = range(min(old.num_pipelines, new.num_pipelines))
    workers = (Worker(k, s) for k in pipelines for s in slots)
    return frozenset(worker for worker in workers if _place(old, worker) == _place(new, worker))


def _split(job: Job) -> tuple[object, ...]:
    """How the GPUs of a worker share what it holds; a table does not tell, so it is only like another table."""
    if job.gpus_per_worker == 1 or not isinstance(job.layout, OrderedLayout):
        return (job.gpus_per_worker,)
    within = ("tp", "cp", "ep")
    sizes = job.layout.sizes()
    order = tuple(axis for axis in job.layout.rank_order if axis in within and sizes[axis] > 1)
    return (job.gpus_per_worker, order, *(sizes[axis] for axis in within))


def _place(job: Job, worker: Worker) -> tuple[tuple[int, ...], tuple[str, ...]]:
    return job.gpus_of_worker(worker), job.nodes_of_worker(worker)

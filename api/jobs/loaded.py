"""Jobs as the planner knows them, read once from their documents."""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from dataclasses import dataclass, field

from api.jobs.slot_bounds import SlotBounds
from planner.failure_key import FailureKey, failure_key
from planner.formats.job_file import job_from_document
from planner.job import Job
from planner.job_hash import job_sha256
from planner.schedule import IntColumn

_MAX_JOBS = 64
_MAX_BYTES = 64 * 2**20
"""Most bytes of the documents that are kept; what is made of them is some times as much."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LoadedJob:
    """A job, and what follows from it alone.

    Parameters
    ----------
    document
        Canonical JSON of the job file.
    job
        What it describes.
    sha256
        Hash of all that its plans depend on.
    racks
        Shape ``(D, P)``: rack of each worker.
    fault_free_key
        Failure key of nothing failed.
    slot_bounds
        By the degraded workers of a failure key: bounds of each slot by its number of dead workers; grows.
    """

    document: bytes
    job: Job
    sha256: str
    racks: IntColumn
    fault_free_key: FailureKey
    slot_bounds: dict[str, SlotBounds] = field(default_factory=dict)


def load_document(document: bytes) -> LoadedJob:
    """Read a job's canonical JSON.

    Raises
    ------
    JobFileError
        If it does not describe a job.
    """
    job = job_from_document(json.loads(document))
    return LoadedJob(
        document=document,
        job=job,
        sha256=job_sha256(job),
        racks=job.worker_racks().reshape(job.num_pipelines, job.num_slots),
        fault_free_key=failure_key(job.problem()),
    )


class JobCache:
    """The jobs that were needed last; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._jobs: OrderedDict[bytes, LoadedJob] = OrderedDict()

    def load(self, document: bytes) -> LoadedJob:
        """Job of a document, read anew only where it is not among the last ones; raises as :func:`load_document` does."""
        with self._lock:
            found = self._jobs.get(document)
            if found is not None:
                self._jobs.move_to_end(document)
                return found
        loaded = load_document(document)
        with self._lock:
            self._jobs[document] = loaded
            while len(self._jobs) > _MAX_JOBS or (len(self._jobs) > 1 and sum(map(len, self._jobs)) > _MAX_BYTES):
                self._jobs.popitem(last=False)
        return loaded

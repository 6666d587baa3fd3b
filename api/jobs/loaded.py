"""Jobs as the planner knows them, read once from their documents."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from api.jobs.slot_bounds import SlotBounds
from api.recent import Recent
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
        self._jobs: Recent[bytes, LoadedJob] = Recent(
            _MAX_JOBS, most_bytes=_MAX_BYTES, size_of=lambda document, _: len(document)
        )

    def load(self, document: bytes) -> LoadedJob:
        """Job of a document, read anew only where it is not among the last ones; raises as :func:`load_document` does."""
        found = self._jobs.get(document)
        if found is None:
            found = load_document(document)
            self._jobs.put(document, found)
        return found

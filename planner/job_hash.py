"""Identity of a job: a hash of all that a plan can depend on."""

from __future__ import annotations

import hashlib

import numpy as np

from planner.job import Job
from planner.plan_content import canonical_json, problem_content


def job_sha256(job: Job) -> str:
    """Hash of everything in a job that a plan can depend on."""
    content = {
        "name": job.name,
        "problem": problem_content(job.problem()),
        "optimizer_state": job.optimizer_state.value,
        "state": [[stage.parameter_bytes, stage.optimizer_state_bytes] for stage in job.stages],
        "recovery": {name: getattr(job.recovery, name) for name in job.recovery.__slots__},
        "nodes": list(job.topology.nodes),
        "gpus_per_node": job.topology.gpus_per_node,
        "rack_of_node": list(job.topology.rack_of_node),
    }
    digest = hashlib.sha256(canonical_json(content))
    digest.update(np.ascontiguousarray(job.layout.worker_gpus, dtype="<i8").tobytes())
    return digest.hexdigest()

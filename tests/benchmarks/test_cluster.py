"""The jobs of the cluster suite."""

from __future__ import annotations

import pytest

from benchmarks.cluster import ClusterJob, cluster_jobs
from planner.failures import parse_failures
from planner.formats.job_file import job_from_document


@pytest.mark.parametrize("entry", tuple(cluster_jobs()), ids=lambda entry: entry.name)
def test_jobs_load_and_can_be_planned(entry: ClusterJob) -> None:
    """Each has the GPUs it says, names its failed nodes, and has room for a plan around them."""
    job = job_from_document(entry.document)
    assert job.topology.num_gpus == entry.num_gpus
    failures = parse_failures(job, [entry.failed_nodes], [])
    assert len(failures.nodes) == len(failures.dead) >= 3
    problem = job.problem(failures.dead, failures.speeds_ppm)
    problem.require_plannable()
    assert problem.num_pipelines * problem.num_slots * 8 == entry.num_gpus

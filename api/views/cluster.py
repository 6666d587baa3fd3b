"""Who runs where, for the map of a job."""

from __future__ import annotations

from api.jobs.loaded import LoadedJob
from api.views.forms import Cluster


def cluster_of(job_id: str, revision: int, loaded: LoadedJob) -> Cluster:
    """Nodes and racks of each worker of a job."""
    job = loaded.job
    nodes = (job.layout.worker_gpus // job.topology.gpus_per_node).tolist()
    return Cluster(
        job=job_id,
        revision=revision,
        num_pipelines=job.num_pipelines,
        num_slots=job.num_slots,
        gpus_per_worker=job.gpus_per_worker,
        nodes=list(job.topology.nodes),
        racks=list(job.topology.racks),
        rack_of_node=list(job.topology.rack_of_node),
        worker_nodes=[list(dict.fromkeys(held)) for held in nodes],
    )

"""Every number that a policy's cost model takes from elsewhere, with where it comes from, and every one that is assumed.

*Published* numbers stand in the source named. *Artifact* numbers are in the simulator that came with Oobleck
(SymbioticLab/Oobleck, branch sosp23-artifact; its figures are for 30 nodes). *Measured* ones were measured here. *Assumed*
ones have no source: they are choices, the same for every policy they touch. Times are seconds, shares are of 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

HOUR_S = 3600.0
DAY_S = 86_400.0

DETECTION_S = 5.0
"""From a loss to everybody knowing. Published: torchft's lighthouse takes a replica for dead 5 s after its last heartbeat."""

REGROUP_S = 10.0
"""Making communicators anew without restarting processes. Artifact: Oobleck's restart of its largest model, GPT-3 6.7B; for its
smaller ones 2 to 6 s."""

LOOKUP_S = 0.02
"""Finding the plan that was made ahead. Measured: an epoch whose template is in the store is answered in 16 ms
(``docs/benchmarks.md``, the service, hit)."""

SOLVE_S = 2.0
"""Making a plan when it is needed, as without normalization. The default of ``replan plan --deadline``."""

RESTART_S = 100.0
"""Starting all processes again and loading a checkpoint. Artifact: Varuna's takes 71 to 112 s, by the number of nodes."""

CHECKPOINT_S = 50.0
"""Training stands still while a checkpoint is written. Artifact: Varuna's takes 11.2 s (GPT-3 medium), 50 s (2.7B), 120 s
(6.7B)."""

COPY_BYTES_PER_S = 12_500_000_000
"""What one GPU receives while state is copied to it, in bytes a second. Assumed: 100 Gbit/s."""

MIGRATION_S = 10.0
"""Copying one worker's state where the job gives no sizes. Assumed."""

REFT_OVERHEAD = 0.01
"""Share of time that in-memory snapshots cost. Published: about 1 % with redundancy (REFT, arXiv 2310.12670)."""

CPR_OVERHEAD = 0.006
"""Share of time that checkpoints cost. Published: 0.53-0.68 % for everything checkpoints cost (CPR, arXiv 2011.02999)."""

SPARE_SWAP_S = 20.0
"""Putting a spare into a lost node's place, detection included. Published: about 20 s at 1,024 GPUs (TrainMover, arXiv
2412.12636); DeadPool gives under 40 s at 512 (arXiv 2607.01646)."""

SPARE_NODES_PER_NODE = 1 / 32
"""Spares kept for each node of the job, rounded up. Assumed."""

HSDP_STALL_S = 180.0
"""Stall of all replicas when one is lost, at 100,000 GPUs. Published: 3 minutes instead of 10 (FT-HSDP, arXiv 2602.00277)."""

HSDP_GPUS = 100_000
"""Where that was measured."""

BAMBOO_REGROUP_S = 30.0
"""Bamboo's reconfiguration with all nodes. Artifact."""

BAMBOO_OVERLOAD = 1.5
"""How much longer an iteration takes once more than one node also does a lost neighbour's work. Published: Bamboo's own simulator
(uclasystem/bamboo)."""

BAMBOO_RISK = 0.05
"""Chance that the next loss is fatal above which Bamboo reconfigures. Published: the same simulator."""

TEMPLATE_SLOPE = 0.933
"""Oobleck's throughput on ``n`` of ``N`` nodes is ``1 - slope * (N - n) / N`` of that on all. Artifact: 0.938, 0.959, 1.013,
0.875 and 0.881 for its five models; this is their mean."""

TEMPLATE_JOIN_S = 45.0
"""How long a new node takes until Oobleck can use it, which it does at the next loss. Artifact."""

TEMPLATE_LEAST_SHARE = 0.4
"""Share of nodes below which Oobleck stops. Artifact: 12 of 30."""

WEIBULL_SHAPE = 0.7
"""Shape of times between failures: failures come in clusters. Published: 0.7 to 0.8 (Schroeder and Gibson, "A large-scale
study of failures in high-performance-computing systems", DSN 2006)."""

RACK_SHARE = 0.1
"""Share of losses that take a whole rack, in bursty traces. Assumed."""

REPAIR_S = 2 * HOUR_S
"""Mean time until a lost node is back, where the job does not say. Assumed."""

FAILURES_PER_NODE_DAY = {
    "llama3": 419 / 54 / 2048,
    "rsc1": 6.50e-3,
    "rsc2": 2.34e-3,
}
"""Failures a node and day. Published: 419 unexpected interruptions in 54 days on 2,048 nodes (Llama 3, arXiv 2407.21783);
6.50 and 2.34 a thousand node-days on Meta's two research clusters (arXiv 2410.21680)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """What answers to failures cost in one simulation; defaults are the module's constants.

    Parameters
    ----------
    detection_s, regroup_s, restart_s, checkpoint_s, solve_s
        As the constants of these names.
    copy_bytes_per_s
        As the constant; the GPUs of a worker each copy their own share.
    spare_nodes
        Nodes that the hot-spare policy keeps beside the job's.
    """

    detection_s: float = DETECTION_S
    regroup_s: float = REGROUP_S
    restart_s: float = RESTART_S
    checkpoint_s: float = CHECKPOINT_S
    solve_s: float = SOLVE_S
    copy_bytes_per_s: float = COPY_BYTES_PER_S
    spare_nodes: int = 1


def young_daly_s(checkpoint_s: float, between_failures_s: float) -> float:
    """Seconds of training between checkpoints that lose least, to first order.

    Young (CACM 1974) and Daly (FGCS 2006): ``sqrt(2 C M)`` for checkpoints of ``C`` seconds and failures ``M`` seconds apart.

    Examples
    --------
    >>> young_daly_s(50, 10_000)
    1000.0
    """
    return math.sqrt(2 * checkpoint_s * between_failures_s)

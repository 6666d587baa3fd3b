"""Every policy by name."""

from __future__ import annotations

from typing import Final

from planner.errors import OptionError
from simulation.policies.bamboo import RedundantComputation
from simulation.policies.checkpointing import (
    CheckpointRestart,
    InMemoryCheckpoint,
    PartialRecovery,
    PerIterationCheckpoint,
)
from simulation.policies.ideal import FaultFree, FaultScaled
from simulation.policies.ours import (
    RePlan,
    WithoutMigration,
    WithoutNormalization,
    WithoutSplit,
    WithoutStaggering,
    WithShadow,
)
from simulation.policies.per_failure import PerFailureChoice
from simulation.policies.replica import DropReplica
from simulation.policies.spare import HotSpare
from simulation.policies.templates import PipelineTemplates
from simulation.policies.tensor_parallel import SmallerTensorParallel

POLICIES: Final = {
    policy.name: policy
    for policy in (
        FaultFree,
        FaultScaled,
        RePlan,
        WithoutMigration,
        WithoutNormalization,
        WithoutStaggering,
        WithoutSplit,
        WithShadow,
        CheckpointRestart,
        PerIterationCheckpoint,
        InMemoryCheckpoint,
        PartialRecovery,
        HotSpare,
        DropReplica,
        RedundantComputation,
        PipelineTemplates,
        PerFailureChoice,
        SmallerTensorParallel,
    )
}
"""The policies in the order of tables."""

ALL = "all"
"""Stands for every policy."""


def policies_named(text: str) -> tuple[str, ...]:
    """Policies of a comma-separated list, each once, in the order of tables; ``all`` stands for every one.

    Raises
    ------
    OptionError
        If there is no such policy.
    """
    wanted = {word.strip() for word in text.split(",")}
    unknown = sorted(wanted - set(POLICIES) - {ALL})
    if unknown:
        raise OptionError(f"there is no policy {unknown[0]!r}; expected all or some of {', '.join(POLICIES)}")
    return tuple(name for name in POLICIES if ALL in wanted or name in wanted)

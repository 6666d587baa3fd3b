"""Pipeline templates: pipelines of uneven depth that together use every node that is left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from simulation.cluster import Change, Cluster
from simulation.constants import TEMPLATE_JOIN_S
from simulation.outcome import Cause
from simulation.policies.policy import Answer, Lost, Mode, PaysForWhatIsUp
from simulation.policies.rates import Rates


@dataclass(slots=True)
class PipelineTemplates(PaysForWhatIsUp):
    """Oobleck (SOSP 2023), by the rules of its own simulator, which :mod:`simulation.oobleck` plays to the step.

    A loss costs detection, new pipelines and the iteration in flight. A node that returns joins at the next loss. Throughput
    falls with the share of workers as its artifact's tables say, from 1F1B. Below two fifths of the workers it stops; it then
    loads the last checkpoint.
    """

    name: ClassVar[str] = "pipeline-templates"
    summary: ClassVar[str] = "Oobleck: pipelines of uneven depth from templates, on every node left"
    keeps_batch: ClassVar[bool] = True
    is_exact: ClassVar[bool] = True
    writes_checkpoints: ClassVar[bool] = True

    rates: Rates
    mode: Mode = field(init=False)

    def begin(self, cluster: Cluster) -> Mode:
        """Every worker that is up."""
        self.mode = self.rates.of_templates(cluster.share)
        return self.mode

    def answer(self, change: Change) -> Answer:
        """Instantiate new pipelines at a loss."""
        costs, before = self.rates.costs, self.mode
        if not change.lost:
            if before.samples_per_s > 0:
                return Answer(mode=before)
            mode = self.begin(change.after)
            stalls = ((Cause.RECONFIGURATION, TEMPLATE_JOIN_S), (Cause.RESTART, costs.restart_s))
            return Answer(mode=mode, stalls=stalls if mode.samples_per_s > 0 else ())
        mode = self.begin(change.after)
        if before.samples_per_s == 0:
            return Answer(mode=mode, stalls=((Cause.RESTART, costs.restart_s),) if mode.samples_per_s > 0 else ())
        stops = mode.samples_per_s == 0 or loses_a_slot(change)
        regroup = (Cause.RESTART, costs.restart_s) if stops else (Cause.RECONFIGURATION, costs.regroup_s)
        return Answer(
            mode=mode,
            stalls=((Cause.DETECTION, costs.detection_s), regroup),
            lost=Lost.SINCE_CHECKPOINT if stops else Lost.ITERATION,
        )


def loses_a_slot(change: Change) -> bool:
    """Whether a loss takes the last copy of a slot's parameters, with everybody where the job's layout puts them."""
    had = {worker.slot for worker in change.before.workers}
    kept = {worker.slot for worker in change.before.workers if worker not in set(change.lost)}
    return kept != had

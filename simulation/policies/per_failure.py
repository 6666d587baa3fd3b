"""A choice for each failure: reroute in place, or partition the model anew over what is left."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from planner.operation import Worker
from simulation.choice import expected_lost_s
from simulation.cluster import Change, Cluster
from simulation.outcome import Cause
from simulation.policies.policy import WAIT, Answer, Lost, Mode, PaysForWhatIsUp
from simulation.policies.rates import Rates


@dataclass(slots=True)
class PerFailureChoice(PaysForWhatIsUp):
    """Odyssey, later called Chameleon (arXiv 2508.21613): at each failure the answer that is expected to lose less.

    Rerouting is what :class:`~simulation.policies.ours.WithoutMigration` does: in place, by our plans, for new communicators.
    Partitioning anew has the rate of pipeline templates, for new communicators too. Either costs detection and the iteration in
    flight at a loss; at a return the job stands still only where that pays. Where a slot lost its last worker the last checkpoint
    is loaded. The choice is the paper's, the rates are ours: its own figures are of another performance model.
    """

    name: ClassVar[str] = "per-failure-choice"
    summary: ClassVar[str] = "Odyssey, Chameleon: reroute or partition anew, whichever is expected to lose less"
    keeps_batch: ClassVar[bool] = True
    is_exact: ClassVar[bool] = True
    writes_checkpoints: ClassVar[bool] = True

    rates: Rates
    held: set[Worker] = field(default_factory=set)
    """Workers that hold their own slot's parameters."""
    mode: Mode = WAIT

    def begin(self, cluster: Cluster) -> Mode:
        """The faster of both."""
        self.held = set(cluster.workers)
        self.mode = max(self._rerouted(), self.rates.of_templates(cluster.share), key=lambda mode: mode.samples_per_s)
        return self.mode

    def answer(self, change: Change) -> Answer:
        """Choose anew at each change."""
        costs, rates, was_running = self.rates.costs, self.rates, self.mode.samples_per_s > 0
        self.held -= set(change.lost)
        is_lost = was_running and self._lost_a_slot()
        self.held |= set(change.returned)
        if is_lost or not was_running:
            self.begin(change.after)
            detection = ((Cause.DETECTION, costs.detection_s),) if is_lost else ()
            restart = ((Cause.RESTART, costs.restart_s),) if self.mode.samples_per_s > 0 else ()
            return Answer(
                mode=self.mode, stalls=(*detection, *restart), lost=Lost.SINCE_CHECKPOINT if is_lost else Lost.NOTHING
            )
        again = rates.of_templates(change.after.share)
        if not change.lost:
            # A return makes nobody stand still unless that pays.
            faster = max(self._rerouted(), again, key=lambda mode: mode.samples_per_s)
            if not rates.pays(self.mode, faster, costs.regroup_s):
                return Answer(mode=self.mode)
        self.mode = min(self._rerouted(), again, key=self._expected_lost_s)
        detection = ((Cause.DETECTION, costs.detection_s),) if change.lost else ()
        return Answer(
            mode=self.mode,
            stalls=(*detection, (Cause.RECONFIGURATION, costs.regroup_s)),
            lost=Lost.ITERATION if change.lost else Lost.NOTHING,
        )

    def _expected_lost_s(self, mode: Mode) -> float:
        slowdown = 1 - mode.samples_per_s / self.rates.best
        return expected_lost_s(self.rates.costs.regroup_s, slowdown, self.rates.between_changes_s)

    def _lost_a_slot(self) -> bool:
        return len({worker.slot for worker in self.held}) < self.rates.periods.job.num_slots

    def _rerouted(self) -> Mode:
        job = self.rates.periods.job
        dead = [job.num_pipelines] * job.num_slots
        for worker in self.held:
            dead[worker.slot] -= 1
        if max(dead) == job.num_pipelines:
            return WAIT
        return self.rates.of_period(self.rates.periods.of_counts(tuple(dead)))

"""Redundant computation: each worker also runs its successor's forwards, and takes over where that is lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from planner.operation import Worker
from simulation.cluster import Change, Cluster
from simulation.constants import BAMBOO_OVERLOAD, BAMBOO_REGROUP_S, BAMBOO_RISK
from simulation.outcome import Cause
from simulation.policies.policy import WAIT, Answer, Lost, Mode, PaysForWhatIsUp, Stalls
from simulation.policies.rates import NS, Rates


@dataclass(slots=True)
class RedundantComputation(PaysForWhatIsUp):
    """A lost worker's predecessor goes on for it; a second loss next to it, or of one that does two workers' work, is fatal.

    Bamboo (NSDI 2023) and its simulator. It runs 1F1B with each forward done twice, and nothing is lost where it survives.
    With more than one overloaded worker an iteration takes half as long again. It reconfigures, with all nodes at once, where
    the next loss is fatal with more than 5 % likelihood (two of the workers in use for each overloaded one), or another
    pipeline can be had. A fatal loss costs a restart from the last checkpoint.
    """

    name: ClassVar[str] = "redundant-computation"
    summary: ClassVar[str] = "Bamboo: neighbours compute twice and take over"
    keeps_batch: ClassVar[bool] = True
    is_exact: ClassVar[bool] = True
    writes_checkpoints: ClassVar[bool] = True

    rates: Rates
    places: dict[Worker, int] = field(default_factory=dict)
    """Place of each worker in use, pipeline after pipeline."""
    overloaded: set[int] = field(default_factory=set)
    """Places whose worker also does the next one's work."""
    pipelines: int = 0

    def begin(self, cluster: Cluster) -> Mode:
        """As many whole pipelines as there are."""
        return self._start(cluster)

    def answer(self, change: Change) -> Answer:
        """Take over, reconfigure, or restart."""
        costs, slots = self.rates.costs, change.after.job.num_slots
        lost = {self.places[worker] for worker in change.lost if worker in self.places}
        detection = (Cause.DETECTION, costs.detection_s)
        if not self.pipelines:
            mode = self._start(change.after)
            return Answer(mode=mode, stalls=((Cause.RESTART, costs.restart_s),) if self.pipelines else ())
        before = {place: _predecessor(place, slots) for place in lost}
        if any(place in self.overloaded or heir in lost or heir in self.overloaded for place, heir in before.items()):
            stalls: Stalls = (detection, (Cause.RESTART, costs.restart_s))
            return Answer(mode=self._start(change.after), stalls=stalls, lost=Lost.SINCE_CHECKPOINT)
        self.overloaded |= set(before.values())
        self.places = {worker: place for worker, place in self.places.items() if place not in lost}
        can_grow = min(change.after.whole_pipelines, change.after.job.num_pipelines) > self.pipelines
        is_risky = self.places and 2 * len(self.overloaded) / len(self.places) > BAMBOO_RISK
        if is_risky or can_grow:
            stalls = ((detection,) if lost else ()) + ((Cause.RECONFIGURATION, BAMBOO_REGROUP_S),)
            return Answer(mode=self._start(change.after), stalls=stalls)
        return Answer(mode=self._mode(), stalls=(detection,) if lost else ())

    def _start(self, cluster: Cluster) -> Mode:
        job = cluster.job
        self.pipelines = min(cluster.whole_pipelines, job.num_pipelines)
        in_use = cluster.workers[: self.pipelines * job.num_slots]
        self.places = {worker: place for place, worker in enumerate(in_use)}
        self.overloaded = set()
        return self._mode()

    def _mode(self) -> Mode:
        if not self.pipelines:
            return WAIT
        rates, job = self.rates, self.rates.periods.job
        twice = rates.samples / (rates.periods.with_forward_twice() * NS)
        whole = rates.of_whole_pipelines(self.pipelines).samples_per_s / rates.best
        rate = twice * whole / (BAMBOO_OVERLOAD if len(self.overloaded) > 1 else 1)
        short = rates.best - rate
        # What is due to fewer pipelines and overload counts as slower, the rest is the price of redundancy.
        redundancy = min(1.0, (rates.best - twice) / short) if short > 0 else 0.0
        assert self.pipelines <= job.num_pipelines
        return Mode(
            samples_per_s=rate,
            iteration_s=rates.samples / rate,
            short_of=((Cause.REDUNDANCY, redundancy), (Cause.SLOWER, 1 - redundancy)),
        )


def _predecessor(place: int, slots: int) -> int:
    """Place of the worker that also runs this one's forwards: the one before, of the first the last of its pipeline."""
    return place - 1 if place % slots else place + slots - 1

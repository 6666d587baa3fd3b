"""Oobleck's own simulator, by its rules: what its artifact's tables are made of, reproduced to the step.

The rules, of SymbioticLab/Oobleck's branch sosp23-artifact, in milliseconds as there:

* A node is ready 45 s after it is added. The first one that is ready starts a rendezvous.
* A removal starts a rendezvous too. It takes the model's restart time and gathers who is ready; a node that becomes ready
  meanwhile joins, one that becomes ready later waits for the next removal. If someone gathered is gone at its end it is held
  again.
* Then all train at the throughput of that number of nodes, whole steps one after the other. Steps end during a rendezvous as
  before it; the one that would end after it is lost.
* Fewer than twelve nodes, or a number that the model does not fit on, do not train. More than 30 train as 30, fewer than 15
  as 15.
* A removal during a rendezvous begins another one, and both end. The second finds nobody gathered, so training stops until
  the next node is ready. That is a slip of the simulator rather than of Oobleck, and it shows on spot markets, where nodes
  leave in groups; ``stops_after_overlap=False`` leaves it out.
* Throughput is samples of finished steps over the time from the end of the first rendezvous to the last step's.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass, field

from simulation.errors import TraceError
from simulation.trace import Trace, TraceEventKind

READY_MS = 45_000
LEAST_NODES = 12
TABLE_NODES = (15, 30)
"""Fewest and most nodes that throughputs are given for."""

_ADD, _REMOVE, _READY, _GATHERED, _STEP = range(5)


@dataclass(frozen=True, slots=True, kw_only=True)
class OobleckModel:
    """What the artifact knows of a model.

    Parameters
    ----------
    samples_per_step
        Samples of one step.
    restart_s
        Seconds that a rendezvous takes.
    samples_per_s
        Throughput by number of nodes, 15 to 30; 0 where the model does not fit.
    """

    samples_per_step: int
    restart_s: float
    samples_per_s: Mapping[int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class OobleckResult:
    """What came out: finished steps, and samples a second."""

    steps: int
    samples_per_s: float


def linear_throughput(at_30: float, slope: float) -> dict[int, float]:
    """Throughputs by the artifact's linear fit: ``at_30 * (1 - slope * (30 - n) / 30)``."""
    least, most = TABLE_NODES
    return {n: at_30 * (1 - slope * (most - n) / most) for n in range(least, most + 1)}


def play_oobleck(model: OobleckModel, trace: Trace, *, stops_after_overlap: bool = True) -> OobleckResult:
    """Play a trace of instances.

    Parameters
    ----------
    model
        What trains.
    trace
        The trace.
    stops_after_overlap
        Whether overlapping rendezvous stop training, as in the artifact.

    Raises
    ------
    TraceError
        If no step is finished.
    """
    run = _Run(model=model, stops_after_overlap=stops_after_overlap)
    for event in trace.events:
        run.push(int(event.seconds * 1000), _ADD if event.kind is TraceEventKind.ADD else _REMOVE, event.node)
    run.play(int(trace.events[-1].seconds * 1000))
    if run.steps == 0 or run.first_ms is None:
        raise TraceError(f"trace {trace.name} lets no step be finished")
    seconds = (run.last_ms - run.first_ms) / 1000
    return OobleckResult(steps=run.steps, samples_per_s=run.steps * model.samples_per_step / seconds)


@dataclass(slots=True, kw_only=True)
class _Run:
    model: OobleckModel
    stops_after_overlap: bool
    queue: list[tuple[int, int, int, str]] = field(default_factory=list)
    number: int = 0
    nodes: dict[str, bool] = field(default_factory=dict)
    """Nodes that are there, and whether they are ready."""
    gathered: list[str] = field(default_factory=list)
    """Who takes part in the rendezvous that is being held."""
    is_gathering: bool = False
    is_training: bool = False
    version: int = 0
    step_ms: int = 0
    steps: int = 0
    first_ms: int | None = None
    last_ms: int = 0

    def push(self, when: int, kind: int, what: str) -> None:
        """Something that will happen; of what happens at once, first what was said first."""
        self.number += 1
        heapq.heappush(self.queue, (when, kind, self.number, what))

    def play(self, end_ms: int) -> None:
        """Let it happen, up to the trace's last event, which no longer does."""
        while self.queue and self.queue[0][0] < end_ms:
            now, kind, _, what = heapq.heappop(self.queue)
            if kind == _ADD:
                self.nodes[what] = False
                self.push(now + READY_MS, _READY, what)
            elif kind == _REMOVE:
                del self.nodes[what]
                self._gather(now)
            elif kind == _READY and what in self.nodes:
                self._ready(now, what)
            elif kind == _GATHERED and (self.is_gathering or self.stops_after_overlap):
                self._begin(now)
            elif kind == _STEP and what == str(self.version):
                self.steps += 1
                self.last_ms = now
                self.push(now + self.step_ms, _STEP, what)

    def _ready(self, now: int, node: str) -> None:
        self.nodes[node] = True
        if self.is_gathering:
            self.gathered.append(node)
        elif not self.is_training:
            self._gather(now)

    def _gather(self, now: int) -> None:
        self.is_gathering = True
        self.gathered = [node for node, is_ready in self.nodes.items() if is_ready]
        self.push(now + int(self.model.restart_s * 1000), _GATHERED, "")

    def _begin(self, now: int) -> None:
        if any(node not in self.nodes for node in self.gathered):
            self._gather(now)
            return
        gathered, self.gathered, self.is_gathering = self.gathered, [], False
        self.version += 1
        least, most = TABLE_NODES
        rate = self.model.samples_per_s[min(max(len(gathered), least), most)]
        self.is_training = len(gathered) >= LEAST_NODES
        if not self.is_training or rate == 0:
            return
        self.step_ms = int(self.model.samples_per_step / rate * 1000)
        self.push(now + self.step_ms, _STEP, str(self.version))
        if self.first_ms is None:
            self.first_ms = now

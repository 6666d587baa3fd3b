"""Traces drawn at random: nodes that fail on their own, in clusters of time, or by whole racks."""

from __future__ import annotations

import heapq
import math
import random
from dataclasses import dataclass
from enum import StrEnum

from planner.errors import OptionError
from planner.topology import Topology
from simulation.constants import RACK_SHARE, REPAIR_S, WEIBULL_SHAPE
from simulation.trace import MAX_EVENTS, Trace, TraceEvent, TraceEventKind


class FailureModel(StrEnum):
    """How failures are spread over time and nodes."""

    EXPONENTIAL = "exponential"
    """Each node on its own, at a constant rate."""
    WEIBULL = "weibull"
    """Each node on its own; one that is just back fails sooner than one that has run long."""
    BURSTY = "bursty"
    """Nodes at a constant rate, and some losses take a whole rack at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationOptions:
    """What kind of trace to draw.

    Parameters
    ----------
    model
        How failures are spread.
    failures_per_node_day
        Losses a node and day, above 0; what a rack takes along counts for each of its nodes.
    repair_s
        Mean seconds until a lost node is back, above 0; exponentially distributed.
    duration_s
        Seconds to draw, above 0.
    seed
        The same seed gives the same trace.
    shape
        Weibull's shape, above 0; 1 is exponential, less is more clustered.
    rack_share
        Of the losses of ``BURSTY``, those by whole racks, 0 to 1.

    Raises
    ------
    OptionError
        If a value is out of its range.
    """

    model: FailureModel = FailureModel.EXPONENTIAL
    failures_per_node_day: float
    repair_s: float = REPAIR_S
    duration_s: float
    seed: int = 0
    shape: float = WEIBULL_SHAPE
    rack_share: float = RACK_SHARE

    def __post_init__(self) -> None:
        for name in ("failures_per_node_day", "repair_s", "duration_s", "shape"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise OptionError(f"{name} is {value}; expected a finite number above 0")
        if not 0 <= self.rack_share <= 1:
            raise OptionError(f"rack_share is {self.rack_share}; expected 0 to 1")


def generate_trace(topology: Topology, options: GenerationOptions, *, name: str = "generated") -> Trace:
    """Draw a trace of a cluster's nodes, all up at the start.

    A lost node is repaired on its own, also where its rack took it. While it is down nothing more happens to it. ``BURSTY``
    splits the rate of a node in two: ``1 - rack_share`` of it strikes the node alone, the rest strikes its rack. Nodes have run
    for long when the trace begins, so that under ``WEIBULL`` too the rate is the one asked for from the start: with new nodes,
    which fail sooner, three days at the rate of Llama 3 would have four times as many losses.

    Raises
    ------
    OptionError
        If there are more than :data:`~simulation.trace.MAX_EVENTS` losses and returns.
    """
    rng = random.Random(options.seed)
    mean_s = 86_400 / options.failures_per_node_day
    own_s, rack_s = mean_s, math.inf
    if options.model is FailureModel.BURSTY:
        own_s = mean_s / (1 - options.rack_share) if options.rack_share < 1 else math.inf
        rack_s = mean_s / options.rack_share if options.rack_share else math.inf
    # A Weibull variable of scale 1 has mean gamma(1 + 1 / shape).
    scale = 1.0
    shape = options.shape if options.model is FailureModel.WEIBULL else 1.0
    if shape != 1.0:
        scale = 1 / math.gamma(1 + 1 / shape)

    def life_s() -> float:
        return math.inf if math.isinf(own_s) else own_s * rng.weibullvariate(scale, shape)

    def first_life_s() -> float:
        """What is left of the life that is under way at the start: an even share of one that is drawn by its length."""
        if shape == 1.0:
            return life_s()
        whole: float = rng.gammavariate(1 + 1 / shape, 1) ** (1 / shape)
        return own_s * scale * whole * rng.random()

    racks: list[list[int]] = [[] for _ in topology.racks]
    for node, rack in enumerate(topology.rack_of_node):
        racks[rack].append(node)
    is_up = [True] * topology.num_nodes
    life = [0] * topology.num_nodes
    events: list[TraceEvent] = []
    # (when, kind, node or rack, number of the node's life): 0 returns, 1 a node's loss, 2 a rack's.
    queue: list[tuple[float, int, int, int]] = [(first_life_s(), 1, node, 0) for node in range(topology.num_nodes)]
    if not math.isinf(rack_s):
        queue += [(rng.expovariate(1 / rack_s), 2, rack, 0) for rack in range(len(racks))]
    heapq.heapify(queue)

    def lose(node: int, now: float) -> None:
        is_up[node] = False
        life[node] += 1
        events.append(TraceEvent(seconds=now, kind=TraceEventKind.REMOVE, node=topology.nodes[node]))
        heapq.heappush(queue, (now + rng.expovariate(1 / options.repair_s), 0, node, life[node]))

    drawn = 0
    while queue and queue[0][0] <= options.duration_s:
        now, kind, index, number = heapq.heappop(queue)
        drawn += 1
        if max(drawn, len(events)) > MAX_EVENTS:
            raise OptionError(
                f"more than {MAX_EVENTS} losses and returns in the first {now / 86_400:.3g} days, the most that are drawn",
                hint="draw a shorter time, fewer failures, or longer repairs",
            )
        if kind == 0:
            is_up[index] = True
            events.append(TraceEvent(seconds=now, kind=TraceEventKind.ADD, node=topology.nodes[index]))
            heapq.heappush(queue, (now + life_s(), 1, index, number))
        elif kind == 1 and is_up[index] and life[index] == number:
            lose(index, now)
        elif kind == 2:
            for node in racks[index]:
                if is_up[node]:
                    lose(node, now)
            heapq.heappush(queue, (now + rng.expovariate(1 / rack_s), 2, index, 0))
    return Trace(
        name=name,
        events=tuple(events),
        start_s=0.0,
        end_s=options.duration_s,
    )


def evenly_spaced(topology: Topology, interval_s: float, num_losses: int, *, seed: int = 0, name: str) -> Trace:
    """One node lost every ``interval_s`` seconds, drawn at random, none of them back; watched for one interval more.

    Raises
    ------
    OptionError
        If there are fewer nodes than losses.
    """
    if num_losses > topology.num_nodes:
        raise OptionError(f"{num_losses} losses of {topology.num_nodes} nodes; expected at most as many")
    lost = random.Random(seed).sample(topology.nodes, num_losses)
    return Trace(
        name=name,
        events=tuple(
            TraceEvent(seconds=interval_s * number, kind=TraceEventKind.REMOVE, node=node)
            for number, node in enumerate(lost, start=1)
        ),
        start_s=0.0,
        end_s=interval_s * (num_losses + 1),
    )

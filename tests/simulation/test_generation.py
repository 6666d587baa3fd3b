"""Traces drawn at random: reproducible, readable, and with the rates that were asked for."""

from __future__ import annotations

import math
import statistics

import pytest

from planner.errors import OptionError
from planner.topology import uniform_racks
from simulation.constants import FAILURES_PER_NODE_DAY, young_daly_s
from simulation.generation import FailureModel, GenerationOptions, evenly_spaced, generate_trace
from simulation.trace import TraceEventKind
from simulation.trace_file import parse_trace, trace_text

NODES = uniform_racks(tuple(f"n{i:03d}" for i in range(200)), 8, 10)


def options(model: FailureModel, **changes: float) -> GenerationOptions:
    """A tenth of a failure a node and day, repaired in an hour, for 50 days: some 1,000 losses of 200 nodes."""
    values = {"failures_per_node_day": 0.1, "repair_s": 3600.0, "duration_s": 50 * 86_400.0, "seed": 3} | changes
    return GenerationOptions(model=model, **values)  # type: ignore[arg-type]


@pytest.mark.parametrize("model", FailureModel)
def test_seeds_repeat_and_files_are_valid(model: FailureModel) -> None:
    """The same seed gives the same trace, another another; the strict reader takes what is written."""
    trace = generate_trace(NODES, options(model))
    assert trace == generate_trace(NODES, options(model))
    assert trace != generate_trace(NODES, options(model, seed=4))
    read = parse_trace(trace_text(trace.events), NODES)
    assert [event.node for event in read.events] == [event.node for event in trace.events]
    assert trace.end_s == 50 * 86_400


@pytest.mark.parametrize("model", FailureModel)
def test_rates_are_what_was_asked_for(model: FailureModel) -> None:
    """0.1 * 200 * 50 = 1,000 losses; four standard deviations of a Poisson count are 13 %, racks of ten cluster more."""
    trace = generate_trace(NODES, options(model, rack_share=0.3))
    losses = sum(event.kind is TraceEventKind.REMOVE for event in trace.events)
    assert losses == pytest.approx(1000, rel=0.35 if model is FailureModel.BURSTY else 0.13)


def test_weibull_has_its_rate_from_the_start() -> None:
    """0.01 * 200 * 300 days are 600 losses, as many in the first third as in the last: nodes are not new at the start."""
    trace = generate_trace(NODES, options(FailureModel.WEIBULL, failures_per_node_day=0.01, duration_s=300 * 86_400.0))
    times = [event.seconds / 86_400 for event in trace.events if event.kind is TraceEventKind.REMOVE]
    # A Poisson count of 200 has a standard deviation of 14, clustering makes it some more; new nodes would lose 400 at first.
    for start in (0, 100, 200):
        assert sum(start <= time < start + 100 for time in times) == pytest.approx(200, abs=70)


@pytest.mark.parametrize(
    "changes", [{"failures_per_node_day": 1e6, "repair_s": 1e-3}, {"failures_per_node_day": 1e6, "repair_s": 1e12}]
)
def test_traces_have_an_end(changes: dict[str, float]) -> None:
    """Also where nodes are lost and back in no time, and where racks are struck that have no node left."""
    with pytest.raises(OptionError, match="more than 100000 losses and returns in the first"):
        generate_trace(NODES, options(FailureModel.BURSTY, duration_s=1e9, **changes))


def test_bursts_take_whole_racks() -> None:
    """Every loss by racks takes the rack's nodes that are up together; without racks no two are lost at once."""
    trace = generate_trace(NODES, options(FailureModel.BURSTY, rack_share=1.0))
    sizes = [len([e for e in events if e.kind is TraceEventKind.REMOVE]) for _, events in trace.moments()]
    # A rack fails every 10 days, and a node is down for an hour: nearly always all ten are up.
    assert statistics.mean(size for size in sizes if size) > 9
    alone = generate_trace(NODES, options(FailureModel.BURSTY, rack_share=0.0))
    assert max(len(events) for _, events in alone.moments()) == 1


def test_weibull_clusters() -> None:
    """A shape below 1 makes short lives more frequent than an exponential of the same mean: median below ``ln 2`` of it."""
    trace = generate_trace(NODES, options(FailureModel.WEIBULL, failures_per_node_day=2.0, repair_s=1.0))
    since = dict.fromkeys(NODES.nodes, 0.0)
    lives = []
    for event in trace.events:
        if event.kind is TraceEventKind.REMOVE:
            lives.append(event.seconds - since[event.node])
        else:
            since[event.node] = event.seconds
    # Weibull of shape 0.7: the median is (ln 2)^(1/0.7) / gamma(1 + 1/0.7) = 0.592 / 1.266 = 0.468 of the mean.
    assert statistics.median(lives) / statistics.mean(lives) == pytest.approx(0.468, abs=0.03)


def test_repairs_take_their_mean() -> None:
    """Some 1,000 exponential times: four standard errors are 13 %."""
    trace = generate_trace(NODES, options(FailureModel.EXPONENTIAL))
    lost: dict[str, float] = {}
    times = []
    for event in trace.events:
        if event.kind is TraceEventKind.REMOVE:
            lost[event.node] = event.seconds
        else:
            times.append(event.seconds - lost[event.node])
    assert statistics.mean(times) == pytest.approx(3600, rel=0.13)


@pytest.mark.parametrize(
    ("name", "value"),
    [("failures_per_node_day", 0.0), ("repair_s", -1.0), ("duration_s", math.inf), ("rack_share", 1.5)],
)
def test_options_out_of_range(name: str, value: float) -> None:
    """Named, with what was expected."""
    with pytest.raises(OptionError, match=name):
        options(FailureModel.BURSTY, **{name: value})


def test_evenly_spaced_losses() -> None:
    """One each interval, all different, and one interval more is watched."""
    trace = evenly_spaced(NODES, 1800.0, 5, name="x")
    assert [event.seconds for event in trace.events] == [1800, 3600, 5400, 7200, 9000]
    assert len({event.node for event in trace.events}) == 5
    assert trace.end_s == 10_800
    with pytest.raises(OptionError, match="201 losses of 200 nodes"):
        evenly_spaced(NODES, 1.0, 201, name="x")


def test_published_rates_and_young_daly() -> None:
    """419 / 54 / 2048 is 3.79 a thousand node-days; sqrt(2 * 50 * 10,000) is 1,000."""
    assert 1000 * FAILURES_PER_NODE_DAY["llama3"] == pytest.approx(3.789, abs=0.001)
    assert young_daly_s(50, 10_000) == 1000

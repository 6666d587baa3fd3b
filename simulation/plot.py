"""A picture of outcomes over time: useful samples a second of each policy, above the share of GPUs that was up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from planner.job import Job
from simulation.cluster import gpus_down
from simulation.outcome import Interval, Outcome
from simulation.trace import Trace, TraceEventKind

BINS = 240
"""Points of each curve; each is the mean of its stretch of time."""

HOUR_S = 3600.0


def plot_outcomes(job: Job, trace: Trace, outcomes: Sequence[Outcome], file: IO[bytes], kind: str) -> None:
    """Draw outcomes into a file.

    Parameters
    ----------
    job, trace
        What was played.
    outcomes
        At least one.
    file
        Open for bytes.
    kind
        ``png`` or ``svg``.
    """
    from matplotlib.figure import Figure  # noqa: PLC0415 - only a picture needs it

    figure = Figure(figsize=(10, 6), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(1, 3))
    times, shares = share_up(job, trace)
    top.step((times - trace.start_s) / HOUR_S, shares, where="post", color="black", linewidth=1)
    top.set_ylabel("GPUs up")
    top.set_ylim(0, 1.05)
    edges = np.linspace(trace.start_s, trace.end_s, BINS + 1)
    hours = (edges - trace.start_s) / HOUR_S
    for number, outcome in enumerate(outcomes):
        rates = binned(outcome.timeline, edges)
        bottom.stairs(rates, hours, baseline=None, label=outcome.policy, linestyle=("-", "--", ":")[number // 10 % 3])
    bottom.set_ylabel("samples a second, before what is lost again")
    bottom.set_xlabel("hours")
    bottom.set_ylim(bottom=0)
    bottom.legend(fontsize="x-small", ncols=3)
    top.set_title(f"{job.name} on {trace.name}")
    # Without dates and random ids the same outcomes give the same file.
    metadata: dict[str, Any] = {"Date": None} if kind == "svg" else {"Software": None}
    figure.savefig(file, format=kind, metadata=metadata)


def share_up(job: Job, trace: Trace) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Times and shares of the job's GPUs that are up from then on."""
    topology = job.topology
    targets = set(trace.initially_down)
    times, shares = [trace.start_s], [1 - len(gpus_down(topology, targets)) / topology.num_gpus]
    for seconds, events in trace.moments():
        for event in events:
            (targets.add if event.kind is TraceEventKind.REMOVE else targets.discard)(event.node)
        times.append(seconds)
        shares.append(1 - len(gpus_down(topology, targets)) / topology.num_gpus)
    return np.array([*times, trace.end_s]), np.array([*shares, shares[-1]])


def binned(timeline: Sequence[Interval], edges: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Mean rate between each two edges, ascending, of a timeline without gaps.

    Examples
    --------
    A second at 2 and a second of standing still make 1 between the edges 0 and 2.
    """
    times = np.array([timeline[0].start_s, *(interval.end_s for interval in timeline)])
    total = np.concatenate([[0.0], np.cumsum([i.samples_per_s * (i.end_s - i.start_s) for i in timeline])])
    rates: npt.NDArray[np.float64] = np.diff(np.interp(edges, times, total)) / np.diff(edges)
    return rates

"""ReCycle's evaluation re-done, and wider: ``python -m simulation.evaluation TABLE [--data FOLDER] [--json FILE]``.

Tables: ``intervals`` (a node lost every 6 h, 2 h, 30 min of 32), ``spot`` (traces of spot markets), ``generated`` (random
failures of the 405B job), ``scale`` (1 %, 5 %, 10 % failed at larger scale), ``ladder`` (which answer is best, by rates),
``oobleck`` (its own simulator's tables). Each prints Markdown; ``docs/evaluation.md`` has them with what they mean.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from planner.failures import FailureSet
from planner.formats.job_file import load_job
from planner.job import Job, Recovery
from planner.ladder import RungName, expected_costs, migration_advice
from planner.migration import best_counts
from planner.operation import Worker
from simulation.choice import event_horizon_s, weigh
from simulation.cluster import Cluster
from simulation.constants import FAILURES_PER_NODE_DAY, HOUR_S, Costs, young_daly_s
from simulation.evaluation_jobs import MODELS, SAMPLES_PER_MICROBATCH, Model, model_job
from simulation.generation import FailureModel, GenerationOptions, evenly_spaced, generate_trace
from simulation.oobleck import OobleckModel, linear_throughput, play_oobleck
from simulation.outcome import Outcome
from simulation.periods import Periods
from simulation.policies.registry import policies_named
from simulation.readiness import ready_later
from simulation.run import Simulation, costs_of
from simulation.seats import seat_instances
from simulation.trace import Trace
from simulation.trace_file import read_trace
from solver_models.result import SolveOptions

EXAMPLES = Path(__file__).parent.parent / "examples"
SHARED = Path(__file__).parent.parent.parent / "shared" / "data"
INTERVALS_S = (6 * HOUR_S, 2 * HOUR_S, HOUR_S / 2)
LOSSES = 8
"""Nodes lost of 32, a quarter."""
SPOT_MODEL = MODELS[1]
LARGE_DAYS = 3
PLANNED_IN_PLACE = ("per-failure-choice", "replan-no-migration", "replan-no-staggering", "replan-no-split")
"""Policies that plan a new key at nearly each event, left out for 16,384 GPUs: each key takes a second there."""
LARGE_RESTART_S = 300.0
"""Restart of 16,384 GPUs. Assumed; FT-HSDP gives ten minutes of stall at 100,000."""
FAILED_SHARES = (0.01, 0.05, 0.10)
LADDER_SLOT = 1
LADDER_CASES = ((0.5 * HOUR_S, 6 * HOUR_S), (60.0, 2 * HOUR_S), (1, 4, 7))
"""Seconds between failures, seconds of a repair, dead workers of one slot of eight."""

Row = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line says: where traces are, search time for each plan, policies, and how long returns take."""

    data: Path
    solve: SolveOptions
    policies: tuple[str, ...]
    ready_after_s: float = 0.0


def intervals(options: Options) -> Iterator[Row]:
    """A node lost every so often and none back, on ReCycle's three jobs of 32 GPUs."""
    for model in MODELS:
        simulation = _simulation(model, model_job(model), options)
        for interval_s in INTERVALS_S:
            name = f"{model.name}, {interval_s / HOUR_S:g} h"
            trace = evenly_spaced(simulation.job.topology, interval_s, LOSSES, name=name)
            yield from _rows(simulation, simulation.play(trace, options.policies))


def spot(options: Options) -> Iterator[Row]:
    """Traces of spot markets, on the 3.35B job with as many pipelines as the most nodes at once fill."""
    for path in sorted((options.data / "traces").glob("*.csv")):
        trace = read_trace(path, None)
        most = _most_at_once(trace)
        if most < 2 * SPOT_MODEL.slots or path.stem.removeprefix("oobleck-")[0].isdigit():
            continue  # the artifact's evenly spaced ones are table intervals'
        simulation = _simulation(SPOT_MODEL, model_job(SPOT_MODEL, most // SPOT_MODEL.slots), options)
        seated = ready_later(seat_instances(trace, simulation.job.topology.nodes), options.ready_after_s)
        yield from _rows(simulation, simulation.play(replace(seated, name=_short_name(path.stem)), options.policies))


def generated(options: Options) -> Iterator[Row]:
    """Llama 3 405B on 16,384 GPUs for three days of random failures at its published rate."""
    job = load_job(EXAMPLES / "llama3-405b.yaml")
    job = replace(job, recovery=replace(job.recovery, restart_s=LARGE_RESTART_S))
    simulation = Simulation(job=job, options=options.solve)
    for model in FailureModel:
        drawn = GenerationOptions(
            model=model, failures_per_node_day=FAILURES_PER_NODE_DAY["llama3"], duration_s=LARGE_DAYS * 24 * HOUR_S
        )
        trace = ready_later(generate_trace(job.topology, drawn, name=str(model)), options.ready_after_s)
        policies = tuple(name for name in options.policies if name not in PLANNED_IN_PLACE)
        yield from _rows(simulation, simulation.play(trace, policies))


def scale(options: Options) -> Iterator[Row]:
    """Workers failed at random at larger scale, in place and after migrations, against fault-scaled throughput."""
    jobs = [model_job(MODELS[2], number) for number in (16, 64)]
    jobs.append(load_job(EXAMPLES / "llama3-405b.yaml"))
    for job in jobs:
        periods = Periods(job=job, options=options.solve)
        for share in FAILED_SHARES:
            yield _scale_row(job, periods, share)


def _scale_row(job: Job, periods: Periods, share: float) -> Row:
    total = job.num_pipelines * job.num_slots
    dead = round(share * total)
    lost = random.Random(0).sample(range(total), dead)
    counts = [0] * job.num_slots
    for worker in lost:
        counts[worker % job.num_slots] += 1
    ways = (best_counts(job.problem(), dead, periods.estimate, level=level) for level in (False, True))
    moved = min(ways, key=periods.of_counts)
    gpus = frozenset(int(gpu) for worker in lost for gpu in job.layout.worker_gpus[worker])
    best = periods.fault_free_ns
    return {
        "job": job.name,
        "gpus": job.topology.num_gpus,
        "failed": share,
        "fault_scaled": Cluster(job=job, down=gpus).gpu_share,
        "in_place": best / periods.of_counts(tuple(counts)),
        "migrated": best / periods.of_counts(moved),
        "whole_pipelines": best / max(best, periods.of_whole_pipelines((total - dead) // job.num_slots)),
        "of_1f1b": periods.baseline_ns / periods.of_counts(moved),
    }


def ladder(options: Options) -> Iterator[Row]:
    """Which rung of the ladder is expected to lose least, by failures of a slot, failure rate and repair time."""
    job = model_job(SPOT_MODEL)
    costs = costs_of(job)
    periods = Periods(job=job, options=options.solve)
    for between_s, repair_s, dead in product(*LADDER_CASES):
        recovery = Recovery(
            mean_time_between_failures_s=between_s,
            repair_s=repair_s,
            restart_s=costs.restart_s,
            checkpoint_interval_s=young_daly_s(costs.checkpoint_s, between_s),
            copy_bytes_per_s=round(costs.copy_bytes_per_s),
        )
        lost = tuple(Worker(k, LADDER_SLOT) for k in range(dead))
        failing = replace(job, recovery=recovery)
        problem = failing.problem(frozenset(lost))
        ways = (migration_advice(failing, problem, periods.estimate, level=level) for level in (False, True))
        advice = min(ways, key=lambda way: periods.of_counts(way.new_counts))
        rungs = expected_costs(
            failing,
            FailureSet(workers=lost, dead=frozenset(lost)),
            fault_free_ns=periods.fault_free_ns,
            reroute_ns=periods.of_counts(advice.counts),
            migrated_ns=periods.of_counts(advice.new_counts),
            slot_cost_ns=periods.estimate,
            advice=advice,
        )
        horizon_s = event_horizon_s(between_s, repair_s, dead)
        weighed = weigh(rungs, periods.fault_free_ns, horizon_s)
        by_name = {expected.rung.name: round(expected.lost_s) for expected in weighed}
        yield {
            "job": job.name,
            "failures every h": round(between_s / HOUR_S, 2),
            "repair h": round(repair_s / HOUR_S, 2),
            "dead in a slot": dead,
            "next event s": round(horizon_s),
            **{str(name): by_name.get(name, "-") for name in RungName},
            "best": str(weighed[0].rung.name),
        }


def oobleck(options: Options) -> Iterator[Row]:
    """Oobleck's simulator: steps and throughput of its artifact and of ours, and ours without its slip."""
    data = json.loads((options.data / "oobleck_throughput.json").read_text(encoding="utf-8"))
    for published in data["artifact_averages"]:
        if published["system"] != "oobleck":
            continue
        name = {"GPT-2-ours": "GPT-2", "GPT-3-2_7b": "GPT-3-2.7b", "GPT-3-6_7b": "GPT-3-6.7b"}.get(
            published["model"], published["model"]
        )
        traces = options.data / "traces"
        path = traces / f"{published['trace']}.csv"
        trace = read_trace(path if path.exists() else traces / f"oobleck-{published['trace']}.csv", None)
        model = oobleck_model(data, name)
        played, mended = (play_oobleck(model, trace, stops_after_overlap=slip) for slip in (True, False))
        yield {
            "trace": published["trace"],
            "model": name,
            "artifact_steps": published["steps"],
            "steps": played.steps,
            "artifact": published["perf"],
            "samples_per_s": played.samples_per_s,
            "without_slip": mended.samples_per_s,
            "has_table": name in data["throughput_30_to_15_nodes"],
        }


def oobleck_model(data: Any, name: str) -> OobleckModel:
    """A model of the artifact's file; by its table of throughputs where it has one, else by its linear fit."""
    table = data["throughput_30_to_15_nodes"].get(name)
    fit = data["linear_fit"]
    return OobleckModel(
        samples_per_step=data["samples_per_step"][name],
        restart_s=data["restart_s"]["oobleck"][name],
        samples_per_s=linear_throughput(fit["thr30"][name], fit["a"][name])
        if table is None
        else {30 - i: rate for i, rate in enumerate(table)},
    )


def _simulation(model: Model, job: Job, options: Options) -> Simulation:
    costs: Costs = replace(costs_of(job), checkpoint_s=model.checkpoint_s)
    return Simulation(job=job, options=options.solve, samples_per_microbatch=SAMPLES_PER_MICROBATCH, costs=costs)


def _most_at_once(trace: Trace) -> int:
    """Most instances that are there at the same time."""
    now = most = 0
    for event in trace.events:
        now += 1 if event.kind == "add" else -1
        most = max(most, now)
    return most


def _short_name(stem: str) -> str:
    """A trace's name without its dates."""
    return stem.partition("-2020")[0].removesuffix("-trace")


def _rows(simulation: Simulation, outcomes: Sequence[Outcome]) -> Iterator[Row]:
    periods = simulation.periods
    for outcome in outcomes:
        yield {
            "trace": outcome.trace,
            "policy": outcome.policy,
            "share": outcome.share,
            "baseline_share": periods.fault_free_ns / periods.baseline_ns,
            "goodput": outcome.goodput,
            "gpu_hours_per_million": outcome.gpu_hours_per_million,
            "lost": {str(cause): seconds / outcome.duration_s for cause, seconds in outcome.lost_s.items()},
            "losses": outcome.losses,
            "rollbacks": outcome.rollbacks,
        }


def _by_policy(rows: Sequence[Row]) -> Iterator[str]:
    """Policies down, traces across, goodput as a share of the fault-free rate."""
    traces = list(dict.fromkeys(row["trace"] for row in rows))
    yield f"| policy | {' | '.join(traces)} |"
    yield "|---" * (len(traces) + 1) + "|"
    shares = {(row["policy"], row["trace"]): row["share"] for row in rows}
    baselines = {row["trace"]: 100 * row["baseline_share"] for row in rows}
    yield f"| (fault-free 1F1B) | {' | '.join(f'{baselines[trace]:.1f}' for trace in traces)} |"
    for policy in dict.fromkeys(row["policy"] for row in rows):
        yield f"| {policy} | {' | '.join(f'{100 * shares[policy, trace]:.1f}' for trace in traces)} |"
    yield ""
    yield from _by_cause(rows, traces)


def _by_cause(rows: Sequence[Row], traces: Sequence[str]) -> Iterator[str]:
    """Where ours lost its time."""
    yield f"| ours lost to | {' | '.join(traces)} |"
    yield "|---" * (len(traces) + 1) + "|"
    ours = [row for row in rows if row["policy"] == "replan"]
    for cause in ours[0]["lost"] if ours else ():
        if any(row["lost"][cause] >= 0.0005 for row in ours):
            lost = [100 * row["lost"][cause] for row in ours]
            yield f"| {cause} | {' | '.join(f'{percent:.1f}' for percent in lost)} |"


def _plain(rows: Sequence[Row]) -> Iterator[str]:
    """Columns as they come; shares in percent."""
    yield f"| {' | '.join(rows[0])} |"
    yield "|---" * len(rows[0]) + "|"
    for row in rows:
        yield f"| {' | '.join(_cell(name, value) for name, value in row.items())} |"


def _cell(name: str, value: Any) -> str:
    if isinstance(value, float) and name.endswith(" h"):
        return f"{value:g}"
    if isinstance(value, float):
        return f"{value:.3f}" if name in ("artifact", "samples_per_s", "without_slip") else f"{100 * value:.1f} %"
    return str(value)


TABLES: dict[str, tuple[Callable[[Options], Iterator[Row]], Callable[[Sequence[Row]], Iterator[str]]]] = {
    "intervals": (intervals, _by_policy),
    "spot": (spot, _by_policy),
    "generated": (generated, _by_policy),
    "scale": (scale, _plain),
    "ladder": (ladder, _plain),
    "oobleck": (oobleck, _plain),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description="Goodput of RePlan and of other ways to survive failures")
    parser.add_argument("table", choices=sorted(TABLES))
    parser.add_argument("--data", type=Path, default=SHARED, help="folder with traces/ and oobleck_throughput.json")
    parser.add_argument("--deadline", type=float, default=0.5, help="seconds of search for each plan")
    parser.add_argument("--gap", type=float, default=0.01, help="relative gap to the bound at which a search may stop")
    parser.add_argument("--policy", default="all", help="policies by name, separated by commas")
    parser.add_argument("--ready-after", type=float, default=0, help="seconds from a return until the node can train")
    parser.add_argument("--json", type=Path, help="write the rows to this file too")
    given = parser.parse_args(arguments)
    options = Options(
        data=given.data,
        solve=SolveOptions(deadline_s=given.deadline, target_gap=given.gap),
        policies=policies_named(given.policy),
        ready_after_s=given.ready_after,
    )
    make, show = TABLES[given.table]
    rows: list[Row] = []
    for row in make(options):
        subject = row["trace"] if "trace" in row else row["job"]
        if not rows or subject not in rows[-1].values():
            # Tables take minutes and are printed whole.
            sys.stderr.write(f"{subject}\n")
        rows.append(row)
    sys.stdout.write("".join(f"{line}\n" for line in show(rows)))
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

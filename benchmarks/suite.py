"""The solver benchmark suite: ``python -m benchmarks.suite SUITE [--deadline 5] [--json FILE]``.

Suites: ``grid`` (128 failure problems), ``zero-bubble`` (the twelve measured rows at 1F1B memory and twice that),
``llama`` (random failures of the 405B layout), ``growth`` (time by number of operations), ``cluster`` (whole commands for up to
131,072 GPUs).
Prints one row a problem as a Markdown table, then the totals, machine and commit.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from benchmarks.cluster import cluster_jobs, plan_by_command
from benchmarks.grid import grid
from benchmarks.zero_bubble import zero_bubble_rows
from planner.formats.job_file import load_job
from planner.operation import Worker
from planner.plan_check import check_schedule
from planner.problem import Problem, Slot, Stage
from solver_models import portfolio
from solver_models.result import SolveOptions

EXAMPLES = Path(__file__).parent.parent / "examples"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One solved problem; times are wall-clock seconds of this run."""

    name: str
    operations: int
    period_ns: int
    bound_ns: int
    gap: float
    status: str
    solver: str
    solve_s: float
    check_s: float
    note: str = ""


def run(name: str, problem: Problem, deadline_s: float, target_gap: float = 0.0, note: str = "") -> Row:
    """Solve one problem with the portfolio and check the answer."""
    began = time.perf_counter()
    result = portfolio.solve(problem, SolveOptions(deadline_s=deadline_s, target_gap=target_gap))
    solved = time.perf_counter()
    assert result.schedule is not None
    assert result.period_ns is not None
    check_schedule(problem, result.schedule, result.period_ns)
    return Row(
        name=name,
        operations=result.schedule.num_operations,
        period_ns=result.period_ns,
        bound_ns=result.bound_ns,
        gap=result.period_ns / result.bound_ns - 1,
        status=result.status,
        solver=result.solver,
        solve_s=solved - began,
        check_s=time.perf_counter() - solved,
        note=note,
    )


def run_grid(deadline_s: float) -> Iterator[Row]:
    """The failure grid."""
    for item in grid():
        yield run(item.name, item.problem, deadline_s)


def run_zero_bubble(deadline_s: float) -> Iterator[Row]:
    """Zero Bubble's measured rows against its published bubble rates, in percent."""
    for row in zero_bubble_rows():
        solved = run(row.name, row.problem, deadline_s)
        rate = 1 - row.work_ns / solved.period_ns
        verdict = "never above" if round(rate, 4) <= row.published_rate else "ABOVE"
        yield replace(solved, note=f"bubble rate {rate:.4f}, published {row.published_rate:.4f}: {verdict}")


def run_llama(deadline_s: float) -> Iterator[Row]:
    """Fifty random sets of one to eight failed nodes of the 405B layout, one worker a node."""
    job = load_job(EXAMPLES / "llama3-405b.yaml")
    for seed in range(50):
        draw = random.Random(seed)
        everyone = [Worker(k, s) for k in range(job.num_pipelines) for s in range(job.num_slots)]
        dead = frozenset(draw.sample(everyone, draw.randint(1, 8)))
        yield run(f"llama3-405b-seed{seed}-f{len(dead)}", job.problem(dead), deadline_s)


def run_growth(deadline_s: float) -> Iterator[Row]:
    """One failed worker, 16 slots x 16 microbatches a pipeline, from 1,536 to 1.57 million operations, up to a gap of 3 %."""
    stage = Stage(
        forward_ns=1000,
        input_grad_ns=1000,
        weight_grad_ns=900,
        transfer_ns=30,
        activation_bytes=10,
        weight_grad_bytes=6,
    )
    for pipelines in (2, 8, 32, 128, 512, 1024, 2048):
        problem = Problem(
            stages=(stage,) * 16,
            slots=tuple(Slot(stages=(s,), sync_ns=500, capacity_bytes=240) for s in range(16)),
            microbatches=(16,) * pipelines,
            dead=frozenset({Worker(0, 5)}),
        )
        yield run(f"D{pipelines}-P16-M16", problem, deadline_s, target_gap=0.03)


def run_cluster(deadline_s: float) -> Iterator[Row]:
    """Whole commands: ``solve s`` is all of ``replan plan``, ``check s`` all of ``replan validate``."""
    for job in cluster_jobs():
        planned, validated = plan_by_command(job, deadline_s)
        summary = planned.printed
        peak = max(planned.peak_bytes, validated.peak_bytes) / 2**30
        yield Row(
            name=job.name,
            operations=summary["num_operations"],
            period_ns=round(summary["period_us"] * 1000),
            bound_ns=round(summary["bound_us"] * 1000),
            gap=summary["gap"],
            status=summary["status"],
            solver=summary["solver"],
            solve_s=planned.wall_s,
            check_s=validated.wall_s,
            note=f"{job.num_gpus:,} GPUs, peak {peak:.2f} GiB",
        )


SUITES: dict[str, Callable[[float], Iterator[Row]]] = {
    "grid": run_grid,
    "zero-bubble": run_zero_bubble,
    "llama": run_llama,
    "growth": run_growth,
    "cluster": run_cluster,
}


def main() -> None:
    """Run one suite."""
    parser = argparse.ArgumentParser(description="RePlan's solver benchmark suite")
    parser.add_argument("suite", choices=sorted(SUITES))
    parser.add_argument("--deadline", type=float, default=5.0, help="seconds for each problem")
    parser.add_argument("--json", type=Path, help="write the rows to this file too")
    arguments = parser.parse_args()
    run("warm-up", next(grid()).problem, 0.1)  # compiled code is loaded before anything is timed
    rows = []
    sys.stdout.write(
        "| problem | operations | period us | bound us | gap | status | found by | solve s | check s | note |\n"
    )
    sys.stdout.write("|---|---|---|---|---|---|---|---|---|---|\n")
    for row in SUITES[arguments.suite](arguments.deadline):
        rows.append(row)
        sys.stdout.write(
            f"| {row.name} | {row.operations} | {row.period_ns / 1000:.3f} | {row.bound_ns / 1000:.3f} | {row.gap:.3%} "
            f"| {row.status} | {row.solver} | {row.solve_s:.2f} | {row.check_s:.2f} | {row.note} |\n"
        )
        sys.stdout.flush()
    gaps = [row.gap for row in rows]
    optimal = sum(row.status == "optimal" for row in rows)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    ).stdout
    sys.stdout.write(
        f"\n{len(rows)} problems: mean gap {sum(gaps) / len(gaps):.3%}, worst {max(gaps):.3%}, {optimal} proved optimal; "
        f"slowest {max(row.solve_s + row.check_s for row in rows):.2f} s, peak {peak:.2f} GiB; "
        f"{platform.machine()}, Python {platform.python_version()}, commit {commit.strip() or 'unknown'}\n"
    )
    if arguments.json is not None:
        arguments.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

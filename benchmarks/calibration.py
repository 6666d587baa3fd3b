"""How long a work second takes, ``python -m benchmarks.calibration``: a solver on instances of a suite, its work counted.

Seconds are of the process and of its children's CPU, so that what else runs on the machine counts little.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from fnmatch import fnmatchcase
from statistics import median

from benchmarks.measure import order_sha256
from benchmarks.suites import SUITES
from solver_models import registry
from solver_models.clock import WorkClock
from solver_models.result import SolveOptions, SolveResult
from solver_models.warm_up import warm_up


def main() -> None:
    """Solve, and print what each instance took."""
    parser = argparse.ArgumentParser(description="print work seconds beside seconds")
    parser.add_argument("--suite", default="grid", choices=tuple(SUITES), help="suite of instances")
    parser.add_argument("--solver", default="portfolio", help="solver that counts its work")
    parser.add_argument("--instances", default="*", help="pattern of names, and more of them separated by commas")
    parser.add_argument("--deadline", type=float, default=5.0, help="work seconds of each search")
    arguments = parser.parse_args()
    warm_up()
    options, ratios = SolveOptions(deadline_s=arguments.deadline, deterministic=True), []
    print("instance  operations  found by  gap  work s  CPU s  wall s  CPU s a work second  order")
    for instance in SUITES[arguments.suite].make():
        if not any(fnmatchcase(instance.name, pattern) for pattern in arguments.instances.split(",")):
            continue
        clock, began, cpu = WorkClock(), time.perf_counter(), _cpu_s()
        found = registry.solve(arguments.solver, instance.problem, options, clock=clock)
        wall_s, cpu_s, work_s = time.perf_counter() - began, _cpu_s() - cpu, clock.now()
        # What ends at once is told, but says nothing about how long a deadline is.
        if work_s > arguments.deadline / 2:
            ratios.append(cpu_s / work_s)
        order = "-" if found.schedule is None else order_sha256(found.schedule)[:8]
        print(
            f"{instance.name}  {instance.num_operations}  {found.solver}  {_told(found)}  "
            f"{work_s:.2f}  {cpu_s:.2f}  {wall_s:.2f}  {cpu_s / work_s:.2f}  {order}"
        )
        sys.stdout.flush()
    if ratios:
        print(
            f"{len(ratios)} searches: {min(ratios):.2f} to {max(ratios):.2f} s a work second, {median(ratios):.2f} half-way"
        )


def _told(found: SolveResult) -> str:
    return "-" if found.period_ns is None or not found.bound_ns else f"{found.period_ns / found.bound_ns - 1:.3%}"


def _cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if __name__ == "__main__":
    main()

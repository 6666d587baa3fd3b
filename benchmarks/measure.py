"""Measuring one contender on one instance: solved, then validated, replayed and proved free of deadlock."""

from __future__ import annotations

import hashlib
import subprocess
import time
from dataclasses import replace

import numpy as np

from benchmarks.cluster import ClusterJob, plan_by_command
from benchmarks.contenders import Answer, Contender, Repeats
from benchmarks.instance import Instance
from benchmarks.memory import forget_peak, peak_bytes, resident_bytes
from benchmarks.row import Measurement
from planner.errors import NoPlanError, OptionError, ScheduleError, SolverCrashedError, SolverMissingError
from planner.plan_check import check_schedule
from planner.problem import Problem
from planner.schedule import Schedule
from solver_models import registry
from solver_models.result import SolveOptions


def measure(instance: Instance, contender: Contender, options: SolveOptions) -> Measurement:
    """Solve and check; whatever our own errors say is in the answer, not raised.

    Parameters
    ----------
    instance
        What is solved.
    contender
        By what.
    options
        Deadline, target gap, seed, and whether work is counted where that can be done.
    """
    if contender.solve is None:
        return _measure_command(instance, options)
    if contender.needs is not None and not registry.is_installed(contender.needs):
        return Measurement(status="not_installed", leaves_out=contender.leaves_out)
    clock = contender.clock(instance.problem, deterministic=options.deterministic)
    base = resident_bytes()
    forget_peak()
    began, cpu_began = time.perf_counter(), time.process_time()
    try:
        answer = contender.solve(instance.problem, replace(options, deterministic=clock == "work"))
    except (OptionError, NoPlanError) as error:
        return Measurement(status="not_applicable", leaves_out=contender.leaves_out, detail=error.message)
    except SolverMissingError as error:
        return Measurement(status="not_installed", leaves_out=contender.leaves_out, detail=error.message)
    except (ScheduleError, SolverCrashedError) as error:
        status = "invalid" if isinstance(error, ScheduleError) else "crashed"
        return Measurement(status=status, leaves_out=contender.leaves_out, detail=error.message)
    solve_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    found = Measurement(
        status=answer.status,
        found_by=answer.found_by if answer.schedule is not None else "",
        leaves_out=contender.leaves_out,
        clock=clock,
        repeats=contender.repeats_by(clock),
        period_ns=answer.period_ns,
        bound_ns=answer.bound_ns,
        solve_s=solve_s,
        solve_cpu_s=cpu_s,
        base_bytes=base,
        solve_peak_bytes=peak_bytes(),
        detail=answer.detail,
    )
    return found if answer.schedule is None else _checked(found, instance.problem, answer, answer.schedule)


def _checked(found: Measurement, whole: Problem, answer: Answer, schedule: Schedule) -> Measurement:
    """The measurement with what checking the schedule took, or with what is wrong with it."""
    assert answer.period_ns is not None
    forget_peak()
    began = time.perf_counter()
    try:
        check_schedule(answer.problem, schedule, answer.period_ns)
    except ScheduleError as error:
        return replace(found, status="invalid", detail=error.message)
    check_s = time.perf_counter() - began
    keeps_memory = all(
        a.capacity_bytes == b.capacity_bytes for a, b in zip(answer.problem.slots, whole.slots, strict=True)
    )
    if keeps_memory and answer.period_ns < answer.bound_ns:
        detail = f"the period {answer.period_ns} ns is below the bound {answer.bound_ns} ns"
        return replace(found, status="invalid", detail=detail)
    return replace(found, check_s=check_s, check_peak_bytes=peak_bytes(), schedule_sha256=order_sha256(schedule))


def order_sha256(schedule: Schedule) -> str:
    """Hash of who runs what in which order: 64 hex digits."""
    found = hashlib.sha256()
    for column in (schedule.offsets, schedule.kind, schedule.stage, schedule.pipeline, schedule.microbatch):
        found.update(np.ascontiguousarray(column, dtype="<i8").tobytes())
    return found.hexdigest()


def _measure_command(instance: Instance, options: SolveOptions) -> Measurement:
    """Whole commands: ``solve_s`` is all of ``replan plan``, ``check_s`` all of ``replan validate``."""
    if instance.job is None:
        return Measurement(status="not_applicable", detail="the instance is of no job")
    job = ClusterJob(name=instance.name, num_gpus=0, document=dict(instance.job), failed_nodes=instance.failed_nodes)
    try:
        planned, validated = plan_by_command(job, options)
    except subprocess.CalledProcessError as error:
        return Measurement(
            status="crashed", detail=f"{' '.join(map(str, error.cmd[2:5]))} ended with {error.returncode}"
        )
    summary = planned.printed
    return Measurement(
        status=summary["status"],
        found_by=summary["solver"],
        clock="work" if options.deterministic else "wall",
        repeats=Repeats.ALWAYS if options.deterministic else Repeats.BY_CHANCE,
        period_ns=round(summary["period_us"] * 1000),
        bound_ns=round(summary["bound_us"] * 1000),
        # That of all that the plan says, its order included.
        schedule_sha256=summary["plan_id"],
        solve_s=planned.wall_s,
        check_s=validated.wall_s,
        base_bytes=0,
        solve_peak_bytes=planned.peak_bytes,
        check_peak_bytes=validated.peak_bytes,
    )

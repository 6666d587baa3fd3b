"""Whole commands on the 405B job, its V and loop placements, and the job on eight times the GPUs.

Each is one ``replan plan`` that writes its plan, and one ``replan validate`` that reads and checks it, in processes of
their own: start of Python, reading the job, comparing with the fault-free plan and writing the file all count.
"""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.formats.job_file import job_to_document, load_job
from solver_models.result import SolveOptions

WHOLE_COMMAND = "command"
"""Name under which whole commands are compared with solvers."""

EXAMPLE = Path(__file__).parent.parent / "examples" / "llama3-405b.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterJob:
    """A job document and the nodes that failed."""

    name: str
    num_gpus: int
    document: dict[str, Any]
    failed_nodes: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One finished command: what it printed as JSON, its wall-clock seconds and its peak of resident memory."""

    printed: dict[str, Any]
    wall_s: float
    peak_bytes: int


def cluster_jobs() -> Iterator[ClusterJob]:
    """The jobs, smallest first."""
    base = job_to_document(load_job(EXAMPLE))
    failed = "gpu[0007,0100,1500]"
    yield ClusterJob(name="llama3-405b", num_gpus=16_384, document=base, failed_nodes=failed)
    for placement in ("v", "loop"):
        halved = copy.deepcopy(base)
        first, middle, last = (_half(base["stages"][v]) for v in (0, 1, 15))
        halved |= {"placement": placement, "stages": [first, *[middle] * 30, last]}
        halved["capacity_bytes"] = base["capacity_bytes"][1]
        yield ClusterJob(name=f"llama3-405b-{placement}", num_gpus=16_384, document=halved, failed_nodes=failed)
    large = copy.deepcopy(base)
    large["topology"]["nodes"] = "gpu[00001-16384]"
    large["layout"]["data_parallel"] = 1024
    large["microbatches"] = 16
    yield ClusterJob(
        name="llama3-405b-dp1024",
        num_gpus=131_072,
        document=large,
        failed_nodes="gpu[00007,00100,03000,16000]",
    )


def _half(stage: dict[str, Any]) -> dict[str, Any]:
    """Half of a slot's stage, as two chunks a slot need; what a stage sends keeps its size."""
    halved = dict(stage)
    for name, value in stage.items():
        if name.endswith("_us") and name != "transfer_us":
            halved[name] = value / 2
        elif name.endswith("_bytes"):
            halved[name] = value // 2
    return halved


def plan_by_command(job: ClusterJob, options: SolveOptions) -> tuple[Command, Command]:
    """Run ``replan plan`` with a deadline, of work or of the wall clock, and ``replan validate`` on a job.

    Raises
    ------
    subprocess.CalledProcessError
        If one of them fails.
    """
    with tempfile.TemporaryDirectory(prefix="replan-benchmark-") as folder:
        job_path, plan_path = Path(folder, "job.json"), Path(folder, "plan.json")
        job_path.write_text(json.dumps(job.document | {"name": job.name}), encoding="utf-8")
        given = ["--deadline", f"{options.deadline_s}s", *(["--deterministic"] if options.deterministic else [])]
        given += ["--workers", str(options.workers)]
        planned = _run("plan", str(job_path), "--fail", job.failed_nodes, *given, "-o", str(plan_path))
        return planned, _run("validate", str(plan_path))


def _run(*arguments: str) -> Command:
    command = [sys.executable, "-m", "cli.main", *arguments, "--json"]
    began = time.perf_counter()
    with subprocess.Popen(command, cwd=EXAMPLE.parent.parent, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return Command(
        printed=json.loads(text),
        wall_s=time.perf_counter() - began,
        peak_bytes=usage.ru_maxrss * 1024,
    )

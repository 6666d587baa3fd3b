"""Suites of jobs: the worked example, random failures of the 405B job, and clusters of up to 131,072 GPUs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from benchmarks.cluster import cluster_jobs
from benchmarks.instance import Instance
from planner.errors import InputError
from planner.failures import parse_failures
from planner.formats.job_file import job_from_document, load_job
from planner.job import Job
from planner.operation import Worker
from planner.problem import Problem, Slot, Stage

EXAMPLES = Path(__file__).parent.parent / "examples"

LLAMA_SETS = 50


def worked_example() -> Iterator[Instance]:
    """ReCycle's 3 x 4 x 6, fault-free and with each slot's failure, without and with a limit to memory; and 2 x 4 x 16."""
    job = _example("recycle-worked-example")
    yield Instance(name="3x4x6", problem=job.problem(), published_ns=27_000, published_by="1F1B, ReCycle")
    for slot in range(job.num_slots):
        third = slot == 2
        yield Instance(
            name=f"3x4x6-slot{slot}",
            problem=job.problem(frozenset({Worker(0, slot)})),
            published_ns=27_000 if third else None,
            published_by="ReCycle" if third else "",
        )
    unit = Stage(forward_ns=1000, input_grad_ns=1000, weight_grad_ns=1000, activation_bytes=2, weight_grad_bytes=1)
    for held in (4, 5, 6):
        yield Instance(
            name=f"3x4x6-slot2-mem{held}",
            problem=Problem(
                stages=(unit,) * 4,
                slots=tuple(Slot(stages=(s,), capacity_bytes=2 * held) for s in range(4)),
                microbatches=(6,) * 3,
                dead=frozenset({Worker(0, 2)}),
            ),
        )
    yield round_robin_example()


def round_robin_example() -> Instance:
    """2 x 4 x 16 with F, I, W of 30, 45, 15: a third-party re-implementation of ReCycle reaches 2895, and 2880 is work."""
    stage = Stage(forward_ns=30_000, input_grad_ns=45_000, weight_grad_ns=15_000)
    return Instance(
        name="2x4x16-slot0",
        problem=Problem(
            stages=(stage,) * 4,
            slots=tuple(Slot(stages=(s,)) for s in range(4)),
            microbatches=(16, 16),
            dead=frozenset({Worker(0, 0)}),
        ),
        published_ns=2_895_000,
        published_by="round-robin rerouting in 1F1B order, third-party re-implementation",
    )


def llama() -> Iterator[Instance]:
    """Fifty random sets of one to eight failed nodes of the 405B layout, one worker a node."""
    job = _example("llama3-405b")
    for seed in range(LLAMA_SETS):
        draw = random.Random(seed)
        everyone = [Worker(k, s) for k in range(job.num_pipelines) for s in range(job.num_slots)]
        dead = frozenset(draw.sample(everyone, draw.randint(1, 8)))
        yield Instance(name=f"llama3-405b-seed{seed}-f{len(dead)}", problem=job.problem(dead))


def clusters() -> Iterator[Instance]:
    """The 405B job with failed nodes, its V and loop placements, and the job on eight times the GPUs."""
    _example("llama3-405b")
    for given in cluster_jobs():
        job = job_from_document(given.document)
        failures = parse_failures(job, [given.failed_nodes], ())
        yield Instance(
            name=given.name,
            problem=job.problem(failures.dead),
            job=given.document | {"name": given.name},
            failed_nodes=given.failed_nodes,
        )


def _example(name: str) -> Job:
    path = EXAMPLES / f"{name}.yaml"
    if not path.exists():
        raise InputError(
            f"the example {path} is not there; this suite is of that job", hint="run it from a checkout of the project"
        )
    return load_job(path)

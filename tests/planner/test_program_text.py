"""All programs as JSON at once."""

from __future__ import annotations

import gzip
import json
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.lowering import lower
from planner.operation import Kind, Operation, Worker
from planner.program import Compute, OptimizerStep, Program, Receive, Send
from planner.program_text import compress_programs, render_programs
from planner.programs import Programs, join_programs
from planner.timing import time_schedule
from tests.plans import tiny_plan
from tests.problems import tiny_problem
from tests.random_orders import random_order


def one_by_one(programs: Programs, plan_id: str) -> dict[Worker, bytes]:
    """The programs as ``json`` writes them."""
    documents = {w: {"plan_id": plan_id, **programs.program(w).to_dict()} for w in programs.workers()}
    return {w: json.dumps(document, separators=(",", ":")).encode("ascii") for w, document in documents.items()}


@given(st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_programs_are_what_json_writes(rng: random.Random) -> None:
    """Both optimizers, several stages a slot, dead workers, idle live ones: the same bytes in the same order."""
    problem = tiny_problem(rng)
    programs = lower(problem, time_schedule(problem, random_order(problem, rng))[0])
    assert list(render_programs(programs, "ab" * 32).items()) == list(one_by_one(programs, "ab" * 32).items())


def test_large_numbers_and_any_order() -> None:
    """Numbers of any length, collectives between computations, and a worker without instructions."""
    large = Operation(Kind.F, 11, 1, 123_456_789)
    programs = join_programs(
        [
            Program(Worker(0, 0), (OptimizerStep(7), Compute(Operation(Kind.B, 10, 0, 0)), OptimizerStep(11))),
            Program(Worker(1, 11), (Receive(large, Worker(0, 0)), Compute(large), Send(large, Worker(0, 0)))),
            Program(Worker(0, 11), ()),
        ],
        num_slots=12,
        num_stages=12,
        microbatches=(5, 123_456_790),
    )
    assert render_programs(programs, "") == one_by_one(programs, "")


def test_compressed_programs_are_their_own_bytes() -> None:
    """Gzip gives each program back, and the same bytes each time: they hold no time of day."""
    plan = tiny_plan()
    rendered = render_programs(lower(plan.problem, plan.schedule), plan.plan_id)
    compressed = compress_programs(rendered)
    assert {worker: gzip.decompress(data) for worker, data in compressed.items()} == rendered
    assert all(data[4:8] == bytes(4) for data in compressed.values())

"""The client's programs are the planner's: the same texts are read, to the same instructions, and the same are refused."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replan_client.errors import ProgramFormatError
from replan_client.operation import parse_operation, parse_worker
from replan_client.program import parse_instruction, parse_program, program_from_dict

from planner import operation as planned_operation
from planner import program as planned
from planner.errors import ScheduleFormatError
from planner.failures import parse_failures
from planner.formats.job_file import job_from_document, load_job
from planner.lowering import lower
from planner.problem import Problem
from planner.program_text import render_programs
from planner.schedule import Schedule
from solver_models.list_scheduling.solve import solve
from solver_models.planning import make_plan
from solver_models.result import SolveOptions
from tests.jobs import DOCUMENT, TIGHT
from tests.problems import tiny_problem
from tests.random_orders import random_order

EXAMPLES = Path(__file__).parents[2] / "examples"
# 2,048 workers: half a minute.
SLOW = "llama3-405b"
NAMES = [
    pytest.param(path.stem, marks=[pytest.mark.slow] if path.stem == SLOW else [])
    for path in sorted(EXAMPLES.glob("*.yaml"))
]
PLANS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "one down": (DOCUMENT, ("n06",)),
    "two down": (DOCUMENT, ("n02", "n05")),
    "tight memory": (TIGHT, ("n06",)),
    "global optimizer": (DOCUMENT | {"optimizer": "global"}, ("n06",)),
}
INSTRUCTIONS = (
    "RECV_F 3F1.2 from 1/2",
    "RECV_I 3I1.2 from 1/4",
    "COMPUTE 3W1.2",
    "COMPUTE 0B10.22",
    "SEND_F 4F1.2 to 1/4",
    "SEND_I 2I1.2 to 1/2",
    "ALL_REDUCE 3 pipelines 0,2-5,7-8 weight 1/18",
    "GLOBAL_BARRIER",
    "OPTIMIZER_STEP 3",
)
LETTERS = "0123456789FIWBRECVSND_/.,-: \n\tGLOBALRIECOMPUTE٣é"


def check_programs(problem: Problem, schedule: Schedule) -> None:
    """Check that all programs of a schedule read here and are written the same, as text and as the service sends them."""
    programs = lower(problem, schedule)
    rendered = render_programs(programs, "0" * 64)
    assert len(rendered) > 0
    for worker in programs.workers():
        text = programs.program(worker).to_text()
        program = parse_program(text)
        assert program.to_text() == text
        sent = json.loads(rendered[worker])
        del sent["plan_id"]
        assert program_from_dict(sent) == program
        assert program.to_dict() == sent


@pytest.mark.parametrize("name", NAMES)
def test_programs_of_examples_read_here(name: str) -> None:
    """Every program of every example gives back its text."""
    problem = load_job(EXAMPLES / f"{name}.yaml").problem()
    schedule = solve(problem, SolveOptions(deadline_s=0.01)).schedule
    assert schedule is not None
    check_programs(problem, schedule)


@pytest.mark.parametrize("name", PLANS)
def test_programs_of_plans_around_failures_read_here(name: str) -> None:
    """Every program of plans that reroute gives back its text."""
    document, failed = PLANS[name]
    job = job_from_document(document)
    plan = make_plan(job, parse_failures(job, failed), SolveOptions(deadline_s=0.3))
    check_programs(plan.problem, plan.schedule)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_programs_of_random_orders_read_here(seed: int) -> None:
    """Fused stages, several stages a slot, both optimizers: every program gives back its text."""
    rng = random.Random(seed)
    problem = tiny_problem(rng)
    check_programs(problem, random_order(problem, rng))


@st.composite
def changed_texts(draw: st.DrawFn) -> str:
    """An instruction's text with up to three letters put in, taken out or replaced."""
    text = draw(st.sampled_from(INSTRUCTIONS))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        letter = draw(st.sampled_from(LETTERS) | st.just(""))
        text = text[:at] + letter + text[at + draw(st.integers(0, 1)) :]
    return text


@given(text=changed_texts() | st.text(max_size=40))
@settings(max_examples=400, deadline=None)
def test_instructions_are_refused_where_the_planner_refuses_them(text: str) -> None:
    """Both readers take the same texts, and give them back; what one refuses the other does."""
    try:
        expected = str(planned.parse_instruction(text))
    except ScheduleFormatError as error:
        with pytest.raises(ProgramFormatError) as caught:
            parse_instruction(text)
        assert caught.value.message == error.message
        assert caught.value.code == "program_malformed"
    else:
        assert str(parse_instruction(text)) == expected == text


@given(text=changed_texts() | st.from_regex(r"[0-9]{0,3}[FIWB/x]?[0-9]{0,2}[./]?[0-9]{0,11}", fullmatch=True))
@settings(max_examples=200, deadline=None)
def test_operations_and_workers_are_refused_where_the_planner_refuses_them(text: str) -> None:
    """The same of the texts within instructions."""
    for ours, theirs in (
        (parse_operation, planned_operation.parse_operation),
        (parse_worker, planned_operation.parse_worker),
    ):
        try:
            expected = str(theirs(text))
        except ScheduleFormatError:
            with pytest.raises(ProgramFormatError):
                ours(text)
        else:
            assert str(ours(text)) == expected == text


@given(
    lines=st.lists(st.sampled_from([f"  {text}" for text in INSTRUCTIONS] + ["", " ", "x", "  COMPUTE"]), max_size=4)
)
@settings(max_examples=100, deadline=None)
def test_programs_are_refused_where_the_planner_refuses_them(lines: list[str]) -> None:
    """The same of whole programs, with the line in the message."""
    for head in ("1/2:", "1/2", ""):
        for end in ("\n", ""):
            text = "\n".join([head, *lines]) + end
            try:
                expected = planned.parse_program(text).to_text()
            except ScheduleFormatError as error:
                with pytest.raises(ProgramFormatError) as caught:
                    parse_program(text)
                assert caught.value.message == error.message
            else:
                assert parse_program(text).to_text() == expected == text


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"worker": "1/2"},
        {"worker": "1/2", "instructions": [], "more": 1},
        {"worker": 1, "instructions": []},
        {"worker": "1/2", "instructions": "GLOBAL_BARRIER"},
        {"worker": "1/2", "instructions": [1]},
        {"worker": "1/2", "instructions": ["COMPUTE zero"]},
        {"worker": "01/2", "instructions": []},
    ],
)
def test_documents_are_refused_where_the_planner_refuses_them(document: dict[str, Any]) -> None:
    """The same of the form that the service sends."""
    with pytest.raises(ScheduleFormatError):
        planned.program_from_dict(document)
    with pytest.raises(ProgramFormatError):
        program_from_dict(document)

"""What a solver process does, without the process: requests to plans, plans to programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from api.answers import PlanSummary, WorkerProgram
from api.models import PlanRequest, read_form
from api.planning import HANDLERS, answer_plan, answer_programs, workers_of_ranks
from planner.errors import FailureSetError, HostlistError, JobFileError, PlanHashError
from planner.formats.plan_file import load_plan

REQUEST: dict[str, Any] = json.loads((Path(__file__).parents[2] / "examples" / "plan-request.json").read_bytes())


def plan_of(**changes: object) -> list[bytes]:
    """Answer to the example's request with some parts changed."""
    return answer_plan([read_form(PlanRequest, REQUEST | changes).canonical(), b""])


def test_a_request_becomes_a_plan_with_its_summary() -> None:
    """The id stands in the file and the summary; the plan loads; the summary has exactly the documented fields."""
    plan_id, content, summary, hindered = plan_of()
    figures = PlanSummary.model_validate_json(summary)
    assert load_plan(content).plan_id == plan_id.decode() == figures.plan_id
    assert json.loads(summary).keys() == PlanSummary.model_fields.keys()
    assert figures.period_us == 27
    assert hindered == b""


def test_a_plan_becomes_programs_of_live_workers() -> None:
    """Of 3 x 4 workers 1/2 is down, so 11 have programs; rank 4k + s, the only GPU of worker k/s, leads to it."""
    plan_id, content, _, _ = plan_of()
    ranks, *parts = answer_programs([content])
    programs = {
        worker.decode(): WorkerProgram.model_validate_json(program)
        for worker, program in zip(parts[::2], parts[1::2], strict=True)
    }
    assert programs.keys() == {f"{k}/{s}" for k in range(3) for s in range(4)} - {"1/2"}
    assert all(p.worker == worker and p.plan_id == plan_id.decode() for worker, p in programs.items())
    assert json.loads(ranks) == {str(4 * k + s): f"{k}/{s}" for k in range(3) for s in range(4)}


def test_ranks_are_expanded() -> None:
    """With tensor parallelism 2 fastest, worker k/s has ranks 2(2k + s) and the next."""
    job = REQUEST["job"] | {
        "topology": {"nodes": "n[0-3]", "gpus_per_node": 2},
        "layout": {"tensor_parallel": 2, "pipeline_parallel": 2, "data_parallel": 2, "rank_order": "tp-pp-dp"},
    }
    _, content, _, _ = plan_of(job=job, failures={})
    expected = {str(2 * (2 * k + s) + i): f"{k}/{s}" for k in range(2) for s in range(2) for i in range(2)}
    assert workers_of_ranks(load_plan(content)) == expected


def test_damage_and_bad_input_are_errors_of_the_tree() -> None:
    """An edited plan, an unknown node, an unsound job, and half a surrogate pair are refused, not crashed on."""
    _, content, _, _ = plan_of()
    with pytest.raises(PlanHashError):
        answer_programs([content.replace(b'"seed":0', b'"seed":1')])
    with pytest.raises(FailureSetError, match="n99"):
        plan_of(failures={"fail": ["n99"]})
    with pytest.raises(HostlistError):
        plan_of(failures={"fail": ["\ud800"]})
    with pytest.raises(JobFileError):
        plan_of(job={"name": "\ud800"})


def test_the_handlers_are_what_the_service_asks_for() -> None:
    """The requests that the service makes have handlers."""
    assert set(HANDLERS) >= {b"plan", b"programs", b"template"}


def test_equal_requests_have_equal_bytes() -> None:
    """Defaults and the order of keys make no difference to a request's canonical form; a value does."""
    plain = PlanRequest.model_validate({"job": {"a": 1, "b": 2}})
    written_out = PlanRequest.model_validate({"options": {"seed": 0}, "failures": {}, "job": {"b": 2, "a": 1}})
    other = PlanRequest.model_validate({"job": {"a": 1, "b": 3}})
    assert plain.canonical() == written_out.canonical() != other.canonical()


def test_a_plan_is_compared_with_what_an_earlier_one_was() -> None:
    """Of ReCycle's example a fault-free plan of 19 us is found; an earlier plan of the job was compared with 20 us."""
    _, _, summary, _ = plan_of()
    earlier = json.dumps(json.loads(summary) | {"fault_free_us": 20.0}).encode()
    request = read_form(PlanRequest, REQUEST | {"options": {"seed": 1}}).canonical()
    later = json.loads(answer_plan([request, earlier])[2])
    assert (json.loads(summary)["fault_free_us"], later["fault_free_us"]) == (19.0, 20.0)

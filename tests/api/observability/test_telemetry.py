"""Metrics: what is counted can be read back in Prometheus' own form."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from api.app import create_app
from api.errors import OverloadedError, SolveTimeoutError
from api.observability.telemetry import Telemetry
from api.settings import Settings
from planner.errors import ReplanError, SolverCrashedError, StageLostError

FAKE = (sys.executable, "-P", str(Path(__file__).parents[1] / "fake_worker.py"))


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Value of each sample of metrics in text form."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(telemetry: Telemetry, name: str, **labels: str) -> float | None:
    """Value of one sample; ``None`` where there is none."""
    return samples(telemetry.render().decode()).get((name, frozenset(labels.items())))


def test_everything_that_happens_is_counted() -> None:
    """Each method changes the metric that it names."""
    telemetry = Telemetry(version="1.2")
    telemetry.request_finished(method="GET", route="/v1/jobs", status=200, seconds=0.002)
    telemetry.request_finished(method="GET", route="/poll", status=204, seconds=30.25, waited_s=30.0)
    telemetry.request_refused("rate_limited")
    with telemetry.solving() as found:
        found.solver, found.gap = "cp_sat", 0.004
    telemetry.template_looked_up(hit=True)
    telemetry.event_answered(source="store", seconds=0.01)
    telemetry.key_precomputed("done")
    telemetry.degraded("corrupt_template")
    telemetry.watch(queue_depth=lambda: 5, processes_ready=lambda: 2, is_draining=lambda: True)
    with telemetry.stream(), telemetry.poll():
        assert value(telemetry, "replan_open_streams") == value(telemetry, "replan_waiting_polls") == 1
    expected = [
        ("replan_info", {"version": "1.2"}, 1),
        ("replan_request_seconds_count", {"method": "GET", "route": "/v1/jobs", "status": "200"}, 1),
        ("replan_request_seconds_sum", {"method": "GET", "route": "/poll", "status": "204"}, 0.25),
        ("replan_wait_seconds_sum", {"route": "/poll"}, 30.0),
        ("replan_wait_seconds_sum", {"route": "/v1/jobs"}, None),
        ("replan_refused_requests_total", {"code": "rate_limited"}, 1),
        ("replan_solve_seconds_count", {"solver": "cp_sat", "outcome": "solved"}, 1),
        ("replan_plan_gap_ratio_sum", {"solver": "cp_sat"}, 0.004),
        ("replan_template_lookups_total", {"result": "hit"}, 1),
        ("replan_template_lookups_total", {"result": "miss"}, 0),
        ("replan_event_seconds_count", {"source": "store"}, 1),
        ("replan_precomputed_plans_total", {"outcome": "done"}, 1),
        ("replan_degradations_total", {"kind": "corrupt_template"}, 1),
        ("replan_queue_depth", {}, 5),
        ("replan_solver_processes_ready", {}, 2),
        ("replan_draining", {}, 1),
        ("replan_open_streams", {}, 0),
    ]
    for name, labels, number in expected:
        assert value(telemetry, name, **labels) == number, name


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (StageLostError("x"), "no_plan"),
        (SolveTimeoutError("x"), "timeout"),
        (SolverCrashedError("x"), "crashed"),
        (OverloadedError("x"), "failed"),
    ],
)
def test_searches_that_find_nothing_are_counted_by_why(error: ReplanError, outcome: str) -> None:
    """The error passes through, no gap is counted, and the outcome says what kind it was."""
    telemetry = Telemetry()
    with pytest.raises(type(error)), telemetry.solving():
        raise error
    assert value(telemetry, "replan_solve_seconds_count", solver="none", outcome=outcome) == 1
    assert value(telemetry, "replan_plan_gap_ratio_count", solver="none") is None


def test_jobs_have_a_bounded_number_of_series() -> None:
    """A deleted job's series goes, and of very many jobs only those with the latest epochs have one."""
    telemetry = Telemetry()
    telemetry.epoch_made(job_id="a", epoch=1, cause="registered")
    telemetry.epoch_made(job_id="a", epoch=2, cause="event")
    assert value(telemetry, "replan_job_epoch", job="a") == 2
    for _ in range(2):
        telemetry.forget_epochs(lambda job_id, epoch: (job_id, epoch) == ("a", 2))
    assert value(telemetry, "replan_job_epoch", job="a") is None
    for number in range(1001):
        telemetry.epoch_made(job_id=f"job{number}", epoch=1, cause="registered")
    series = [key for key in samples(telemetry.render().decode()) if key[0] == "replan_job_epoch"]
    assert len(series) == 1000
    assert value(telemetry, "replan_job_epoch", job="job0") is None


def test_requests_are_counted_by_route_not_by_path(tmp_path: Path) -> None:
    """Paths that differ in their parts count under one route, unknown ones under one more, and refusals by code."""
    settings = Settings(store=str(tmp_path / "replan.db"), solver_processes=1, change_rate=2)
    with TestClient(create_app(settings, worker_command=FAKE)) as client:
        for path in ("/v1/plans/a", "/v1/plans/b", "/nothing/1", "/nothing/2"):
            client.get(path)
        client.post("/v1/plans")
        assert client.post("/v1/plans", json={"job": {"a": 1}}).status_code == 201
        client.post("/v1/plans")
        answer = client.get("/metrics")
        found = samples(answer.text)
    assert answer.headers["content-type"].startswith("text/plain; version=")
    counts = {
        (dict(labels)["method"], dict(labels)["route"], dict(labels)["status"]): number
        for (name, labels), number in found.items()
        if name == "replan_request_seconds_count"
    }
    assert counts == {
        ("GET", "/v1/plans/{plan_id}", "404"): 2,
        ("GET", "unmatched", "404"): 2,
        ("POST", "/v1/plans", "415"): 1,
        ("POST", "/v1/plans", "201"): 1,
        ("POST", "unmatched", "429"): 1,
    }
    assert found["replan_refused_requests_total", frozenset({("code", "rate_limited")})] == 1
    assert found["replan_solve_seconds_count", frozenset({("solver", "fake"), ("outcome", "solved")})] == 1
    assert found["replan_plan_gap_ratio_sum", frozenset({("solver", "fake")})] == 0.25

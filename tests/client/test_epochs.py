"""Epochs as the service writes them: everything in its form is understood or kept, and nothing else is taken."""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replan_client.epochs import Epoch, Rung
from replan_client.epochs import EpochPlan as ReadPlan
from replan_client.epochs import EpochProblem as ReadProblem
from replan_client.errors import AnswerError, NoPlanError, StageLostError

from api.jobs.epoch_body import EpochBody, EpochPlan, EpochProblem, LadderRung

PLAN: dict[str, Any] = {
    "template": "a" * 64,
    "failure_key": "0,1",
    "status": "feasible",
    "period_us": 27,
    "bound_us": 26.5,
    "gap": None,
    "throughput_kept": 0.7,
    "solver": "list_scheduling",
    "deadline_s": 0.25,
    "relabelling": {"home": [], "swaps": []},
}
BODY: dict[str, Any] = {
    "job": "j",
    "epoch": 3,
    "revision": 2,
    "cause": "event",
    "created_at": "2026-01-01T00:00:00.000Z",
    "failures": {"nodes": "n1", "ranks": [], "workers": [], "degraded": {}},
    "failed_workers": ["1/0", "2/1"],
    "dropped": [],
    "shards_restored": False,
    "plan": PLAN,
    "problem": None,
    "source": "solved",
    "chosen": "reroute_after_migration",
    "ladder": [
        {
            "name": "reroute_after_migration",
            "available": True,
            "reason": None,
            "period_us": 27,
            "one_time_s": 1,
            "lost_s": None,
            "horizon_s": 3.5,
        }
    ],
    "migrations": [{"from": "0/1", "to": "1/0", "copy_from": None, "bytes": 1000, "seconds": None}],
    "moved": [{"worker": "0/1", "position": "1/0"}],
    "num_new_pairs": 0,
    "new_pairs": [],
    "from_iteration": 7,
}
TYPED = (
    "job",
    "epoch",
    "revision",
    "cause",
    "failed_workers",
    "moved",
    "migrations",
    "plan",
    "problem",
    "chosen",
    "ladder",
)


def read(**fields: Any) -> Epoch:
    """The epoch above with other fields."""
    return Epoch.from_bytes(json.dumps(BODY | fields).encode(), job="j")


def test_an_epoch_is_read_as_it_is() -> None:
    """The service's own form takes the body too, so that neither changes without the other."""
    EpochBody.model_validate(BODY)
    epoch = read()
    assert (epoch.job, epoch.epoch, epoch.revision, epoch.cause, epoch.from_iteration) == ("j", 3, 2, "event", 7)
    assert (epoch.failed_workers, dict(epoch.moved), epoch.chosen) == (
        ("1/0", "2/1"),
        {"0/1": "1/0"},
        "reroute_after_migration",
    )
    assert epoch.require_plan() == epoch.plan == ReadPlan(**{name: PLAN[name] for name in ReadPlan.__slots__})
    assert epoch.ladder == (Rung(**BODY["ladder"][0]),)
    assert epoch.body == BODY
    assert read(something_new=1).body["something_new"] == 1


def test_all_figures_of_the_service_are_there() -> None:
    """What its form has of plans, problems and rungs the client's has too, but for two that are for the service alone."""
    assert set(EpochPlan.model_fields) - set(ReadPlan.__slots__) == {"deadline_s", "relabelling"}
    assert set(EpochProblem.model_fields) == set(ReadProblem.__slots__)
    assert set(LadderRung.model_fields) == set(Rung.__slots__)
    assert set(TYPED) < set(EpochBody.model_fields)


def test_who_stands_where() -> None:
    """0/1 took the place of the failed 1/0: that is occupied, its own is not, nor is that of the failed 2/1."""
    epoch = read()
    assert [epoch.is_occupied(position) for position in ("0/0", "0/1", "1/0", "2/1")] == [True, False, True, False]
    assert [epoch.is_live(worker) for worker in ("0/1", "1/0")] == [True, False]
    assert [epoch.position_of(worker) for worker in ("0/0", "0/1")] == ["0/0", "1/0"]


def test_epochs_without_a_plan() -> None:
    """The problem's code says which error it is."""
    lost = read(plan=None, problem={"code": "stage_lost", "message": "slots [0]", "hint": "restore a checkpoint"})
    with pytest.raises(StageLostError, match="epoch 3 of job 'j' has no plan: slots") as caught:
        lost.require_plan()
    assert caught.value.hint == "restore a checkpoint"
    with pytest.raises(NoPlanError) as later:
        read(plan=None, problem={"code": "solve_timeout", "message": "m", "hint": None}).require_plan()
    assert later.value.code == "solve_timeout"


@pytest.mark.parametrize("value", [True, 1.5, -1, "", [1], [{}], {"a": 1}, "1" * 5000])
@pytest.mark.parametrize("name", TYPED)
def test_fields_of_another_type_are_refused(name: str, value: Any) -> None:
    """The field stands in the message; any text is taken for a text."""
    is_text = isinstance(value, str) and name in ("cause", "chosen")
    with nullcontext() if is_text else pytest.raises(AnswerError, match=rf"{name}|job"):
        assert getattr(read(**{name: value}), name) == value


@pytest.mark.parametrize("name", TYPED)
def test_missing_fields_are_named(name: str) -> None:
    """What there is none of, and what that may mean."""
    body = {key: value for key, value in BODY.items() if key != name}
    with pytest.raises(AnswerError, match=f"has no '{name}'.*versions"):
        Epoch.from_bytes(json.dumps(body).encode(), job="j")


@pytest.mark.parametrize("figure", ["1e999", "-1e999", "1" + "0" * 400, "true", '"27"', "NaN"])
def test_figures_that_are_none_are_refused(figure: str) -> None:
    """Infinite, huge, of another type: never a float to calculate with."""
    content = json.dumps(BODY).replace('"period_us": 27', f'"period_us": {figure}')
    with pytest.raises(AnswerError):
        Epoch.from_bytes(content.encode(), job="j")


@given(
    content=st.binary(max_size=80)
    | st.recursive(st.none() | st.integers() | st.text(max_size=3), st.lists).map(json.dumps).map(str.encode)
)
@settings(max_examples=60, deadline=None)
def test_whatever_comes_is_an_epoch_or_an_error(content: bytes) -> None:
    """Nothing else leaves the reader."""
    with pytest.raises(AnswerError):
        Epoch.from_bytes(content, job="j")

"""Plan files: the way there and back, and everything that can be wrong with one."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import DocumentLimitError, InputError, PlanFileError, PlanHashError
from planner.formats.plan_file import dump_plan, load_plan, read_plan, write_plan
from planner.migration import Migration
from planner.operation import Worker
from planner.plan import Plan, Seat
from planner.plan_content import canonical_json, content_id
from tests.plans import planned_problem, tiny_plan, tiny_schedule


def edited(change: Callable[[dict[str, Any]], object], *, rehash: bool) -> bytes:
    """The tiny plan's file with its document changed, and its id made to fit or not."""
    document = json.loads(dump_plan(tiny_plan()))
    change(document)
    if rehash:
        document["plan_id"] = content_id(canonical_json(document["content"]))
    return json.dumps(document).encode()


def same(a: Plan, b: Plan) -> bool:
    """Whether two plans agree in every field."""
    return all(getattr(a, field.name) == getattr(b, field.name) for field in fields(a))


def test_plan_survives_the_way_through_a_file(tmp_path: Path) -> None:
    """Every field comes back, and the file's bytes are the same when written again."""
    plan = tiny_plan(
        migrations=(Migration(source=Worker(0, 0), target=Worker(1, 1), copy_from=Worker(0, 1), num_bytes=7),),
        advised_migrations=(
            Migration(source=Worker(1, 0), target=Worker(1, 1), copy_from=Worker(0, 1), num_bytes=7, seconds=1.5),
        ),
        relabelling=(Seat(worker=Worker(0, 0), part=Worker(1, 0)),),
        job_name='tiny \N{SNOWMAN} \\ "quoted"',
    )
    path = tmp_path / "plan.json"
    write_plan(plan, path)
    back = read_plan(path)
    assert same(plan, back)
    assert dump_plan(back) == path.read_bytes()


def test_slow_workers_keep_their_durations() -> None:
    """At half the speed worker 0/0's operations take 2,000 ns, and come back so."""
    problem = planned_problem(speeds_ppm={Worker(0, 0): 500_000})
    plan = tiny_plan(problem=problem, schedule=tiny_schedule(problem), degraded=((Worker(0, 0), 500_000),))
    back = load_plan(dump_plan(plan))
    assert same(plan, back)
    assert {t.end_ns - t.start_ns for t in back.schedule.operations(Worker(0, 0))} == {2000}


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6))
def test_a_file_cut_short_is_refused(where: int) -> None:
    """Whatever byte it ends at, half a plan is no plan."""
    data = dump_plan(tiny_plan())
    with pytest.raises(PlanFileError):
        load_plan(data[: where % (len(data) - 2)])


@settings(deadline=None, max_examples=150)
@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_damaged_byte_never_yields_another_plan(where: int, flip: int) -> None:
    """A changed byte is refused, or changes nothing that counts."""
    data = bytearray(dump_plan(tiny_plan()))
    data[where % len(data)] ^= flip
    try:
        back = load_plan(bytes(data))
    except InputError:
        return
    assert back.plan_id == tiny_plan().plan_id


def test_edited_content_is_a_hash_mismatch() -> None:
    """A period made smaller by hand does not match the id any more."""
    data = edited(lambda d: d["content"]["result"].update(period_ns=1), rehash=False)
    with pytest.raises(PlanHashError, match="edited or damaged"):
        load_plan(data)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["content"].update(extra=1),
        lambda d: d["content"]["result"].pop("status"),
        lambda d: d["content"]["result"].update(period_ns="12000"),
        lambda d: d["content"]["result"].update(period_ns=11_000),
        lambda d: d["content"]["problem"]["stages"][0].update(forward_ns=-1),
        lambda d: d["content"]["problem"].update(dead=["7/7"]),
        lambda d: d["content"]["problem"].update(microbatches=[]),
        lambda d: d["content"]["failures"].update(key="x"),
        lambda d: d["content"]["schedule"].update({"5/0": d["content"]["schedule"]["0/0"]}),
        lambda d: d["content"]["schedule"]["0/0"].update(operations="0F0.0"),
        lambda d: d["content"]["schedule"]["0/0"].update(operations="0F0.0 0F0.1 0I0.0 0W0.0 0I0.1 0Q0.1"),
        lambda d: d["content"]["schedule"]["0/0"].update(operations="0F0.0 0F0.1 0I0.0 0W0.0 0I0.1 0W0.999999999"),
        lambda d: d["content"]["schedule"]["0/0"].update(operations="0F0.0 0F0.1 0I0.0 0W0.0 0I0.1 00W0.1"),
        lambda d: d["content"]["schedule"]["0/0"].update(operations="0F0.0 0F0.1 0I0.0 0W0.0 0I0.1 0 2 0 1"),
        lambda d: d["content"]["schedule"]["0/0"].update(
            operations="0F0.0 0F0.1 0I0.0 0W0.0 0I0.1 0W99999999999999999999.1"
        ),
        lambda d: d["content"]["schedule"]["0/0"]["start_ns"].__setitem__(0, 2**70),
        lambda d: d["content"]["provenance"].update(deadline_s=2),
        lambda d: d.update(wall_s=-1),
        lambda d: d.update(comment="hello"),
    ],
)
def test_a_forged_file_with_a_fitting_hash_is_refused_by_its_form(change: Callable[[dict[str, Any]], object]) -> None:
    """Unknown keys, wrong types, other spellings and parts that do not fit are refused even where the hash fits."""
    with pytest.raises(PlanFileError):
        load_plan(edited(change, rehash=True))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "not a whole JSON document"),
        (b"[]", "replan-plan"),
        (b'{"format": "other"}', "replan-plan"),
        (b'{"format": "replan-plan", "schema_version": 2}', "schema_version"),
        (b'{"format": "replan-plan", "schema_version": 1}', "plan's form"),
        (b'{"format": NaN}', "NaN"),
        (b'{"format": 1, "format": 2}', "twice"),
        (b"\xff\xfe", "UTF-8|JSON"),
    ],
)
def test_other_documents_are_refused(data: bytes, message: str) -> None:
    """What is no plan file says what was expected."""
    with pytest.raises(PlanFileError, match=message):
        load_plan(data)


def test_deep_nesting_is_refused() -> None:
    """A hundred thousand brackets end in an error, not in a crash."""
    with pytest.raises(DocumentLimitError):
        load_plan(b"[" * 100_000)


def test_writing_leaves_no_other_file_and_keeps_the_umask(tmp_path: Path) -> None:
    """Only the plan is in the folder, readable as any other file."""
    path = tmp_path / "plan.json"
    path.write_text("old")
    write_plan(tiny_plan(), path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["plan.json"]
    plain = tmp_path / "plain"
    plain.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_missing_files_and_folders_are_input_errors(tmp_path: Path) -> None:
    """Reading what is not there, or a folder, and writing into a missing folder say so."""
    with pytest.raises(InputError, match="No such file"):
        read_plan(tmp_path / "none.json")
    with pytest.raises(InputError, match="directory"):
        read_plan(tmp_path)
    with pytest.raises(InputError, match="cannot write"):
        write_plan(tiny_plan(), tmp_path / "none" / "plan.json")

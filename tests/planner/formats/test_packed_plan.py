"""Packed plans: the way there and back, and everything that can be wrong with one."""

from __future__ import annotations

import json
import zlib
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import DocumentLimitError, PlanFileError, PlanHashError, ReplanError
from planner.formats import packed_plan
from planner.formats.packed_plan import pack_plan, packed_plan_id, unpack_plan
from planner.formats.plan_file import dump_plan
from planner.migration import Migration
from planner.operation import Worker
from planner.plan import Plan, Seat
from planner.schedule import Schedule
from tests.plans import planned_problem, tiny_plan, tiny_schedule

HEAD_AT = 37


def same(a: Plan, b: Plan) -> bool:
    """Whether two plans agree in every field."""
    return all(getattr(a, field.name) == getattr(b, field.name) for field in fields(a))


def changed(schedule: Schedule, **columns: Any) -> Schedule:
    """A schedule with other columns, each given as a list of changes (row, value)."""
    new = {}
    for name, changes in columns.items():
        column = np.array(getattr(schedule, name))
        for row, value in changes:
            column[row] = value
        new[name] = column
    return replace(schedule, **new)


def rebuilt(change: Any) -> bytes:
    """The tiny plan, packed, with its unfolded body changed."""
    data = pack_plan(tiny_plan())
    return data[:HEAD_AT] + zlib.compress(change(zlib.decompress(data[HEAD_AT:])))


def test_a_plan_survives() -> None:
    """Every field comes back, and the bytes are the same when packed again."""
    plan = tiny_plan(
        migrations=(Migration(source=Worker(0, 0), target=Worker(1, 1), copy_from=Worker(0, 1), num_bytes=7),),
        relabelling=(Seat(worker=Worker(0, 0), part=Worker(1, 0)),),
        job_name='tiny \N{SNOWMAN} \\ "quoted"',
    )
    data = pack_plan(plan)
    back = unpack_plan(data)
    assert same(plan, back)
    assert dump_plan(back) == dump_plan(plan)
    assert pack_plan(back) == data
    assert packed_plan_id(data) == plan.plan_id


@given(st.integers(1, 999_999), st.lists(st.integers(0, 10**9), min_size=24, max_size=24))
@settings(max_examples=50, deadline=None)
def test_any_times_and_speeds_survive(speed: int, moves: list[int]) -> None:
    """Starts that follow no rule, before 0 too, and a slow worker: all come back to the nanosecond."""
    problem = planned_problem(speeds_ppm={Worker(0, 1): speed})
    timed = tiny_schedule(problem)
    by = np.array(moves) - 5 * 10**8
    schedule = replace(timed, start_ns=timed.start_ns + by, end_ns=timed.end_ns + by)
    plan = tiny_plan(problem=problem, schedule=schedule, degraded=((Worker(0, 1), speed),))
    assert same(unpack_plan(pack_plan(plan)), plan)


def test_what_cannot_be_packed() -> None:
    """An operation that lasts longer than the problem says, or a microbatch that it does not have, is refused."""
    schedule = tiny_plan().schedule
    with pytest.raises(PlanFileError, match="last"):
        pack_plan(tiny_plan(schedule=changed(schedule, end_ns=[(3, int(schedule.end_ns[3]) + 1)])))
    with pytest.raises(PlanFileError, match="microbatch"):
        pack_plan(tiny_plan(schedule=changed(schedule, microbatch=[(3, 2)])))
    with pytest.raises(PlanFileError, match="microbatch"):
        pack_plan(tiny_plan(schedule=changed(schedule, pipeline=[(3, 2)])))


def test_another_schedule_under_the_same_id() -> None:
    """What was read must have the id in front: here the first operation waits for other 5 ns."""
    body = zlib.decompress(pack_plan(tiny_plan())[HEAD_AT:])
    length = int.from_bytes(body[:4], "little")
    # After the head: 4 workers of 4 bytes, four columns of 24 bytes, then the distinct waits of 8 bytes each.
    at = 4 + length + 4 * 4 + 4 * 24
    with pytest.raises(PlanHashError):
        unpack_plan(rebuilt(lambda body: body[:at] + (5).to_bytes(8, "little") + body[at + 8 :]))


def edit_head(body: bytes, **changes: Any) -> bytes:
    """A body with its head changed."""
    length = int.from_bytes(body[:4], "little")
    head = json.dumps(json.loads(body[4 : 4 + length]) | changes).encode()
    return len(head).to_bytes(4, "little") + head + body[4 + length :]


@pytest.mark.parametrize(
    ("data", "error", "match"),
    [
        (b"", PlanFileError, "not a packed plan"),
        (b"RPPK\x02" + bytes(32), PlanFileError, "version 2"),
        (b"RPPK\x01" + bytes(32) + b"junk", PlanFileError, "damaged"),
        (pack_plan(tiny_plan())[:-1], PlanFileError, "cut short"),
        (pack_plan(tiny_plan()) + b"!", PlanFileError, "follows"),
        (rebuilt(lambda body: body[:-1]), PlanFileError, "bytes of columns"),
        (rebuilt(lambda body: body[:3]), PlanFileError, "cut short|head"),
        (rebuilt(lambda body: edit_head(body, num_operations=25)), PlanFileError, "bytes of columns"),
        (rebuilt(lambda body: edit_head(body, num_operations=10**12)), PlanFileError, "head"),
        (rebuilt(lambda body: edit_head(body, num_waits=0)), PlanFileError, "bytes of columns"),
        (rebuilt(lambda body: edit_head(body, extra=1)), PlanFileError, "head"),
        (rebuilt(lambda body: body[:4] + b"[" + body[5:]), PlanFileError, "head"),
    ],
)
def test_what_is_no_packed_plan(data: bytes, error: type[ReplanError], match: str) -> None:
    """Bytes of another form, version or length are refused by name."""
    with pytest.raises(error, match=match):
        unpack_plan(data)


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither more bytes than a packed plan has are read, nor more unfolded."""
    data = pack_plan(tiny_plan())
    monkeypatch.setattr(packed_plan, "_MAX_BODY_BYTES", 100)
    with pytest.raises(DocumentLimitError, match="unfolds"):
        unpack_plan(data)
    monkeypatch.setattr(packed_plan, "MAX_PACKED_BYTES", 100)
    with pytest.raises(DocumentLimitError, match="at most 100"):
        unpack_plan(data)


@given(st.binary(max_size=3), st.integers(0, 10**6), st.integers(1, 255))
@settings(max_examples=200, deadline=None)
def test_damage_is_found(tail: bytes, place: int, flip: int) -> None:
    """Whatever byte of the body is changed or added, reading ends in a typed error or in the same plan."""
    body = bytearray(zlib.decompress(pack_plan(tiny_plan())[HEAD_AT:]))
    body[place % len(body)] ^= flip
    try:
        read = unpack_plan(rebuilt(lambda _: bytes(body) + tail))
    except ReplanError:
        return
    # Only what is no part of a plan's id may differ.
    assert replace(read, wall_s=0.0).plan_id == tiny_plan().plan_id

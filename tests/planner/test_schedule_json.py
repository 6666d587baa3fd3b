"""The schedule's part of a plan's canonical JSON."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from planner.operation import Kind, Operation, Worker
from planner.plan_content import canonical_json, plan_json
from planner.schedule import TimedOperation, schedule_from_orders
from planner.schedule_json import schedule_json
from tests.plans import tiny_plan


@given(
    st.dictionaries(
        st.builds(Worker, st.integers(0, 11), st.integers(0, 1)),
        st.lists(
            st.builds(
                TimedOperation,
                st.builds(
                    Operation,
                    st.sampled_from(Kind),
                    st.integers(0, 4000),
                    st.integers(0, 99_999),
                    st.integers(0, 10**9),
                ),
                st.integers(-(2**61), 2**61),
                st.just(0),
            ),
            min_size=1,
            max_size=4,
        ),
        max_size=6,
    )
)
@settings(max_examples=100, deadline=None)
def test_it_is_what_json_writes(orders: dict[Worker, list[TimedOperation]]) -> None:
    """Operations as text and integer starts, workers sorted as text, idle ones left out: the bytes ``json`` gives."""
    expected = {
        str(worker): {
            "operations": " ".join(str(timed.operation) for timed in order),
            "start_ns": [timed.start_ns for timed in order],
        }
        for worker, order in orders.items()
    }
    assert schedule_json(schedule_from_orders(12, 2, orders)) == canonical_json(expected)


def test_a_plan_is_written_canonically() -> None:
    """Keys are sorted throughout, without spaces."""
    written = plan_json(tiny_plan())
    assert canonical_json(json.loads(written)) == written

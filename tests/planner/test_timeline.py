"""What drawings of a plan are made of."""

from __future__ import annotations

from itertools import pairwise

from planner.operation import Worker
from planner.problem import Optimizer, Slot, Stage
from planner.timeline import Bar, Sync, timeline_of
from tests.plans import planned_problem, tiny_plan, tiny_schedule


def test_bars_say_when_and_where_from() -> None:
    """Worker 0/1 runs both pipelines' microbatches one after the other, 1,000 ns each; every second pair is another's."""
    timeline = timeline_of(tiny_plan())
    bars = list(timeline.bars(Worker(0, 1)))
    # Its first F waits for 0F0.0, which takes 1,000 ns; the plan's first start is 0.
    assert [str(bar.operation) for bar in bars[:4]] == ["1F0.0", "1F1.0", "1I0.0", "1I1.0"]
    assert [(bar.start_ns, bar.end_ns) for bar in bars[:3]] == [(1000, 2000), (2000, 3000), (3000, 4000)]
    assert [bar.rerouted for bar in bars] == [bar.operation.pipeline == 1 for bar in bars]
    assert sum(bar.rerouted for bar in bars) == 6
    assert list(timeline.bars(Worker(1, 1))) == []
    assert bars[0] == Bar(bars[0].operation, 1000, 2000, False)


def test_syncs_follow_the_last_operation_of_their_slot_or_of_all() -> None:
    """Staggered, each slot syncs once its last worker is done: slot 1 after 12 operations from 1,000 on; global, all wait."""
    slots = (Slot(stages=(0,), sync_ns=500), Slot(stages=(1,), sync_ns=700))
    for optimizer, first in ((Optimizer.STAGGERED, None), (Optimizer.GLOBAL, 13_000)):
        problem = planned_problem(slots=slots, optimizer=optimizer)
        timeline = timeline_of(tiny_plan(problem=problem, schedule=tiny_schedule(problem)))
        last = max(bar.end_ns for k in (0, 1) for bar in timeline.bars(Worker(k, 0)))
        assert timeline.syncs == (Sync(last if first is None else first, 500), Sync(13_000, 700))
        assert timeline.span_ns == 13_700


def test_memory_rises_with_f_and_falls_with_i_and_w() -> None:
    """8 bytes from the start of F, 4 of them from the end of I to the end of W; what changes nothing is no step."""
    stage = Stage(forward_ns=1000, input_grad_ns=1000, weight_grad_ns=1000, activation_bytes=8, weight_grad_bytes=4)
    problem = planned_problem(stages=(stage, stage))
    timeline = timeline_of(tiny_plan(problem=problem, schedule=tiny_schedule(problem)))
    steps = timeline.memory(Worker(0, 1))
    # 1F0.0 1F1.0 1I0.0 1I1.0 1F0.1 1F1.1 ... from 1,000 on: F takes at once, I gives half back when it ends; where the second
    # I ends the next F begins, so 4 bytes go and 8 come.
    assert steps[:5] == ((1000, 8), (2000, 16), (4000, 12), (5000, 16), (6000, 24))
    assert steps[-1] == (13_000, 0)
    assert all(a[1] != b[1] for a, b in pairwise(steps))

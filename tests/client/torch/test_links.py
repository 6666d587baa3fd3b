"""Links among real processes, some of which die, hang or leave."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from replan_client.operation import Operation, Worker, parse_operation, parse_worker
from replan_client.torch.links import Links
from replan_client.torch.spec import TensorSpec

from tests.client.torch.processes import Here, processes

ALL = tuple(Worker(k, s) for k in range(2) for s in range(2))
FOUR = TensorSpec(shape=(4,), dtype=torch.float64)


def _links(here: Here, generation: int = 0, positions: tuple[Worker, ...] = ALL, timeout_s: float = 30) -> Links:
    store = dist.PrefixStore(f"generation{generation}", here.store())
    return Links(store, positions, parse_worker(here.name), timeout_s=timeout_s)


def _message(text: str) -> Operation:
    return parse_operation(text)


def _exchange(here: Here) -> dict[str, Any]:
    """Everything links do, once: messages both ways between slots, sums within them, a barrier, a copy."""
    with _links(here) as links:
        me, found = links.me, {}
        forward, backward = _message(f"1F{me.pipeline}.0"), _message(f"0I{me.pipeline}.0")
        other = Worker(me.pipeline, 1 - me.slot)
        if me.slot == 0:
            links.post_receive(backward, other, FOUR)
            links.send(forward, other, torch.arange(4, dtype=torch.float64) + 10 * me.pipeline)
            found["received"] = links.wait(backward).tolist()
        else:
            links.post_receive(forward, other, FOUR)
            found["received"] = links.wait(forward).tolist()
            # Not contiguous: every other element.
            links.send(backward, other, torch.arange(8, dtype=torch.float64)[::2])
        links.wait_sends()
        sums = [
            torch.full((2, 2), 1.0 + me.pipeline),
            torch.full((3,), 5.0 * me.slot, dtype=torch.float64),
            torch.ones(1),
        ]
        links.all_reduce(sums)
        found["sums"] = [tensor.tolist() for tensor in sums]
        links.barrier()
        if me == Worker(0, 0):
            links.give(Worker(1, 1), [torch.arange(3), torch.zeros(2, 0)])
        if me == Worker(1, 1):
            specs = [TensorSpec(shape=(3,), dtype=torch.int64), TensorSpec(shape=(2, 0), dtype=torch.float32)]
            found["copied"] = [tensor.tolist() for tensor in links.take(Worker(0, 0), specs)]
        links.barrier()
        return found


def test_messages_sums_and_copies_arrive() -> None:
    """Messages reach whom they are for, all-reduce sums over the slot alone, and copies keep types and empty shapes."""
    with processes() as group:
        found = {child.name: child.result() for child in group.start_all(ALL, _exchange)}
    assert found["0/0"]["received"] == found["1/0"]["received"] == [0, 2, 4, 6]
    assert found["0/1"]["received"] == [0, 1, 2, 3]
    assert found["1/1"]["received"] == [10, 11, 12, 13]
    # 1 + 2 over the pipelines; 5 * slot twice; 1 twice.
    for name, five in (("0/0", 0), ("1/0", 0), ("0/1", 10), ("1/1", 10)):
        assert found[name]["sums"] == [[[3, 3], [3, 3]], [five] * 3, [2]]
    assert found["1/1"]["copied"] == [[0, 1, 2], [[], []]]

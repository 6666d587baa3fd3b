"""Links among real processes, some of which die, hang or leave."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from replan_client.operation import Operation, Worker, parse_operation, parse_worker
from replan_client.torch.errors import LinkBrokenError
from replan_client.torch.links import BUCKET_BYTES, MOST_PENDING_SENDS, Links
from replan_client.torch.spec import TensorSpec

from tests.client.torch.processes import Here, processes

ALL = tuple(Worker(k, s) for k in range(2) for s in range(2))
FOUR = TensorSpec(shape=(4,), dtype=torch.float64)


def _links(here: Here, generation: int = 0, positions: tuple[Worker, ...] = ALL, timeout_s: float = 30) -> Links:
    store = dist.PrefixStore(f"generation{generation}", here.store())
    return Links(store, positions, parse_worker(here.name), timeout_s=timeout_s)


def _meet(here: Here) -> None:
    """Wait until all four processes run."""
    store = here.store()
    store.add("here", 1)
    while store.add("here", 0) < len(ALL):
        time.sleep(0.01)


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


def _left_alone(here: Here, timeout_s: float) -> str:
    """Wait for the worker that will be gone, or for somebody who waits for it; close; meet the others without it."""
    # Not before all are there, so that the time limit has nothing to do with how long processes take to start.
    _meet(here)
    links = _links(here, timeout_s=timeout_s)
    links.barrier()
    here.report("formed")
    said = ""
    try:
        if links.me == Worker(0, 1):
            links.all_reduce([torch.ones(2)])
        else:
            # 1/0 waits for 0/0, which waits for the lost 1/1.
            source = Worker(1, 1) if links.me == Worker(0, 0) else Worker(0, 0)
            message = _message("0I0.0")
            links.post_receive(message, source, FOUR)
            links.wait(message)
    except LinkBrokenError as error:
        said = f"{type(error).__name__} {error.peer}"
        # The error is kept on purpose: its frames must not keep the connections open.
        kept = error
        links.close()
    with _links(here, generation=1, positions=ALL[:-1]) as again:
        total = torch.ones(1)
        again.all_reduce([total])
        again.barrier()
    assert kept is not None
    return f"{said}, then {total.item():g}"


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_losing_a_worker_breaks_everybody_and_the_others_form_again(how: str) -> None:
    """Whoever waits for a killed worker learns of it at once, of a stopped one by its time limit; so do those behind them."""
    with processes() as group:
        children = group.start_all(ALL, _left_alone, 60 if how == "kill" else 3)
        for child in children:
            assert child.next_report() == "formed"
        getattr(children[-1], how)()
        found = [child.result() for child in children[:-1]]
    # Sums of ones over the live workers of the slot: two in slot 0, one in slot 1.
    assert found == [
        "LinkBrokenError 1/1, then 2",
        "LinkBrokenError None, then 1",
        "LinkBrokenError 0/0, then 2",
    ]


def _closed_with_work_under_way(here: Here) -> str:
    """0/0 leaves with a receive posted and a large send that nobody takes; the others wait for it."""
    links = _links(here)
    links.barrier()
    message = _message("1F0.0")
    if links.me == Worker(0, 0):
        links.post_receive(_message("0I0.0"), Worker(0, 1), FOUR)
        links.send(message, Worker(0, 1), torch.ones(2_000_000))
        links.close()
        links.close()
        with pytest.raises(LinkBrokenError, match=r"0/0 cannot send 1F0\.0 to 0/1: its links are closed"):
            links.send(message, Worker(0, 1), torch.ones(1))
        with pytest.raises(LinkBrokenError, match="its links are closed"):
            links.wait(message)
        with pytest.raises(LinkBrokenError, match="its links are closed"):
            links.all_reduce([torch.ones(1)])
        return "left"
    other = _message("1F0.1")
    links.post_receive(other, Worker(0, 0), FOUR)
    with pytest.raises(LinkBrokenError) as broken:
        links.wait(other)
    links.close()
    return str(broken.value.peer)


def test_who_leaves_is_noticed_even_with_work_under_way() -> None:
    """Closing ends what is under way, and everybody who waits for it learns of it at once; closing twice is fine."""
    with processes() as group:
        children = group.start_all(ALL, _closed_with_work_under_way)
        assert [child.result() for child in children] == ["left", "0/0", "0/0", "0/0"]


def _many_sends(here: Here) -> list[float]:
    """More messages than may be under way, received in order, some while others are sent the other way."""
    with _links(here, positions=ALL[:2]) as links:
        count = 3 * MOST_PENDING_SENDS
        messages = [_message(f"{1 - links.me.slot}{'IF'[1 - links.me.slot]}0.{j}") for j in range(count)]
        for j, message in enumerate(messages):
            mine = _message(f"{links.me.slot}{'IF'[links.me.slot]}0.{j}")
            links.post_receive(mine, Worker(0, 1 - links.me.slot), TensorSpec(shape=(1,), dtype=torch.float32))
            links.send(message, Worker(0, 1 - links.me.slot), torch.tensor([float(j)]))
        received = [links.wait(_message(f"{links.me.slot}{'IF'[links.me.slot]}0.{j}")).item() for j in range(count)]
        links.wait_sends()
        links.barrier()
        return received


def test_messages_of_a_pair_keep_their_order() -> None:
    """Many messages both ways arrive as what they were sent as."""
    with processes() as group:
        for child in group.start_all(ALL[:2], _many_sends):
            assert child.result() == list(range(3 * MOST_PENDING_SENDS))


def _nobody_comes(here: Here) -> str:
    with pytest.raises(LinkBrokenError) as broken:
        _links(here, timeout_s=1)
    return str(broken.value)


def test_others_that_do_not_come_are_an_error() -> None:
    """Forming without the others ends at the time limit and says with whom."""
    with processes() as group:
        assert "0/0 cannot link up with 0/0 0/1 1/0 1/1" in group.start("0/0", _nobody_comes).result()


def test_a_worker_alone_needs_nobody() -> None:
    """With one live worker there is nothing to wait for."""
    with Links(dist.HashStore(), [Worker(0, 0)], Worker(0, 0)) as links:
        total = torch.ones(1)
        links.all_reduce([total])
        links.barrier()
        links.wait_sends()
        assert total.item() == 1


def _large_sums(here: Here) -> list[float]:
    """Sums of tensors that do not fit one bucket, between small ones of two types."""
    with _links(here, positions=(ALL[0], ALL[2])) as links:
        count = BUCKET_BYTES // 8 + 3
        tensors = [torch.ones(2), torch.full((count,), 2.0, dtype=torch.float64), torch.ones(3), torch.ones(1).double()]
        links.all_reduce(tensors)
        return [value for tensor in tensors for value in tensor.unique().tolist()]


def test_large_sums_are_taken_in_parts() -> None:
    """Every tensor is summed once, in whatever bucket it lies."""
    with processes() as group:
        for child in group.start_all((ALL[0], ALL[2]), _large_sums):
            assert child.result() == [2, 4, 2, 2]


@pytest.mark.parametrize("positions", [(), ALL[1:], ALL + ALL[:1]], ids=["none", "not-me", "twice"])
def test_positions_must_hold_each_worker_once(positions: tuple[Worker, ...]) -> None:
    """A list of positions without this one, or with one twice, is refused."""
    with pytest.raises(ValueError, match="expected each once, 0/0 among them"):
        Links(dist.HashStore(), positions, ALL[0])

"""Measure what messages and all-reduces between processes take, with the executor's own links."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch.distributed import Store

from replan_client.operation import Kind, Operation, Worker
from replan_client.torch.emulation_processes import Json, run_processes
from replan_client.torch.links import Links
from replan_client.torch.profiler_errors import EmulationError
from replan_client.torch.spec import spec_of


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTimes:
    """Times by number of bytes, in microseconds.

    Parameters
    ----------
    transfer_us
        From the call that sends a message to the moment at which the receiver has it: half a round trip.
    all_reduce_us
        Of tensors of together so many bytes over all processes.
    """

    transfer_us: Mapping[int, float]
    all_reduce_us: Mapping[int, float]


def measure_links(
    store: Store,
    number: int,
    count: int,
    *,
    transfer_bytes: Iterable[int] = (),
    all_reduce_bytes: Iterable[int] = (),
    device: torch.device | str = "cpu",
    repeats: int = 20,
    warm_up: int = 3,
    timeout_s: float = 60.0,
) -> LinkTimes:
    """Measure among processes that all call this with the same arguments.

    Messages go between the first two processes; all take part in the all-reduces. Gloo carries what is in memory, NCCL what is
    on GPUs.

    Parameters
    ----------
    store
        A store that all processes share, with a prefix of its own.
    number, count
        This process's number, 0 or more, and how many there are, 2 or more.
    transfer_bytes, all_reduce_bytes
        Sizes to measure, each at least 0.
    device
        Where the tensors are.
    repeats, warm_up
        Tries of each size that count, and before them that do not.
    timeout_s
        Seconds that each message may take.

    Raises
    ------
    LinkBrokenError
        If a process does not come, or leaves.
    """
    device = torch.device(device)
    backend = "nccl" if device.type == "cuda" else "gloo"
    everyone = [Worker(k, 0) for k in range(count)]
    with Links(store, everyone, everyone[number], backend=backend, device=device, timeout_s=timeout_s) as links:
        # The first tries of a link find it cold, so more of them do not count.
        transfer = {
            size: _median(lambda size=size: _round_trip_us(links, size) / 2, repeats, warm_up)  # type: ignore[misc]
            for size in sorted(set(transfer_bytes))
        }
        all_reduce = {
            size: _median(lambda size=size: _all_reduce_us(links, size), repeats, warm_up)  # type: ignore[misc]
            for size in sorted(set(all_reduce_bytes))
        }
        links.barrier()
    return LinkTimes(transfer_us=transfer, all_reduce_us=all_reduce)


def measure_local_links(
    count: int, *, transfer_bytes: Iterable[int] = (), all_reduce_bytes: Iterable[int] = (), timeout_s: float = 300.0
) -> LinkTimes:
    """Measure among processes of this machine, which are started for it: through memory, in place of a network.

    Parameters
    ----------
    count
        Processes, 2 or more.
    transfer_bytes, all_reduce_bytes
        Sizes to measure, each at least 0.
    timeout_s
        Seconds for all of it.

    Raises
    ------
    EmulationError
        If a process fails or time runs out.
    """
    if count < 2:
        raise EmulationError(f"links between {count} processes cannot be measured; expected 2 or more")
    sizes, sums = sorted(set(transfer_bytes)), sorted(set(all_reduce_bytes))
    argument = {"count": count, "transfer": sizes, "all_reduce": sums}
    by_process = run_processes(_measure, [argument] * count, timeout_s=timeout_s)
    # Only the first one sees a message go and come back; an all-reduce is over when the last one has it.
    return LinkTimes(
        transfer_us=dict(zip(sizes, by_process[0]["transfer"], strict=True)),
        all_reduce_us={size: max(found["all_reduce"][i] for found in by_process) for i, size in enumerate(sums)},
    )


def _measure(number: int, store: Store, argument: Json) -> Json:
    times = measure_links(
        store,
        number,
        argument["count"],
        transfer_bytes=argument["transfer"],
        all_reduce_bytes=argument["all_reduce"],
    )
    return {"transfer": list(times.transfer_us.values()), "all_reduce": list(times.all_reduce_us.values())}


def _median(measure: Callable[[], float], repeats: int, warm_up: int) -> float:
    """Unlike compute's, a message's usual delays are part of it: who waits for one has to be woken."""
    for _ in range(warm_up):
        measure()
    return statistics.median(measure() for _ in range(repeats))


def _round_trip_us(links: Links, size: int) -> float:
    """There as an activation, back as a gradient; whoever does not take part has nothing to do."""
    first, second = links.positions[:2]
    there, back = Operation(Kind.F, 1, 0, 0), Operation(Kind.I, 0, 0, 0)
    tensor = torch.zeros(size, dtype=torch.uint8, device=links.device)
    began = time.perf_counter_ns()
    if links.me == first:
        links.post_receive(back, second, spec_of(tensor))
        _synchronize(links.device)
        links.barrier()
        began = time.perf_counter_ns()
        links.send(there, second, tensor)
        links.wait(back)
    elif links.me == second:
        links.post_receive(there, first, spec_of(tensor))
        links.barrier()
        links.send(back, first, links.wait(there))
    else:
        links.barrier()
    _synchronize(links.device)
    took = time.perf_counter_ns() - began
    links.wait_sends()
    return took / 1000


def _all_reduce_us(links: Links, size: int) -> float:
    tensor = torch.zeros(-(-size // 4), dtype=torch.float32, device=links.device)
    links.barrier()
    _synchronize(links.device)
    began = time.perf_counter_ns()
    links.all_reduce([tensor])
    _synchronize(links.device)
    return (time.perf_counter_ns() - began) / 1000


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)

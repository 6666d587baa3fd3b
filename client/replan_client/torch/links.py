"""Links: what the live workers of one generation send each other.

A generation lasts from one forming to the first thing that breaks or to the next change of plan. Its links are made once all its
workers are known, and closed by whoever leaves. Closing is also how a worker tells: everybody who waits for it, or who
will, gets a :class:`~replan_client.torch.errors.LinkBrokenError`, closes in turn, and so all of them learn of it.
"""

from __future__ import annotations

import time
import zlib
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from replan_client.operation import Kind, Operation, Worker
from replan_client.torch.errors import LinkBrokenError
from replan_client.torch.groups import make_group
from replan_client.torch.spec import TensorSpec, spec_of

MOST_PENDING_SENDS = 16
"""Sends under way at most: one more first waits for the oldest, whose tensor is then given free."""

BUCKET_BYTES = 64 * 2**20
"""Tensors are summed together until they have as many bytes."""


@dataclass(slots=True)
class _Pending:
    """Something under way: the work, the tensor it reads or fills, and how to name it in an error."""

    work: Any
    tensor: torch.Tensor
    what: str
    peer: Worker | None


class Links:
    """Messages, all-reduces and barriers among the live workers of one generation.

    Activations, gradients and the rest have groups of their own. In each, what one worker sends another arrives in the order
    in which it is sent, so receives have to be posted in that order; programs do. The ranks are the live positions, ascending.

    Not to be used from several threads at once.

    Parameters
    ----------
    store
        Shared by the workers; outlives each of them. Needs a prefix that no other generation has had.
    positions
        All live positions, in any order, each once.
    me
        This process's position, one of them.
    backend
        ``gloo`` for tensors in memory, ``nccl`` for GPUs.
    device
        Where received tensors are made.
    timeout_s
        Seconds after which whoever does not come here, or does not answer, counts as gone; for each wait. More than the
        longest wait of an iteration in which all is well.

    Raises
    ------
    LinkBrokenError
        If the others do not come.
    ValueError
        If positions are repeated or do not hold ``me``.
    """

    def __init__(
        self,
        store: dist.Store,
        positions: Sequence[Worker],
        me: Worker,
        *,
        backend: str = "gloo",
        device: torch.device | str = "cpu",
        timeout_s: float = 60.0,
    ) -> None:
        if len(set(positions)) < len(positions) or me not in positions:
            raise ValueError(f"positions {[str(p) for p in positions]}: expected each once, {me} among them")
        self.me = me
        self.positions = tuple(sorted(positions))
        self.peers = tuple(worker for worker in self.positions if worker.slot == me.slot)
        self.device = torch.device(device)
        self.timeout_s = timeout_s
        self._backend = backend
        self._rank = {position: rank for rank, position in enumerate(self.positions)}
        self._receives: dict[Operation, _Pending] = {}
        self._sends: deque[_Pending] = deque()
        self._groups: dict[str, Any] = {}
        self._closed = False
        for name in (_FORWARD, _BACKWARD, _ALL):
            self._form(store, name, self.positions)
        self._form(store, _PEERS, self.peers)
        try:
            self.barrier()
        except LinkBrokenError:
            self.close()
            raise
        self.formed_ns = time.monotonic_ns()
        """By this machine's monotonic clock, the end of a barrier of all workers: a moment they have in common."""

    def _form(self, store: dist.Store, name: str, members: Sequence[Worker]) -> None:
        if len(members) == 1:
            return
        # Every slot has a group of this name of its own.
        within = dist.PrefixStore(f"{name}{self.me.slot}" if name == _PEERS else name, store)
        try:
            self._groups[name] = make_group(
                within, members.index(self.me), len(members), backend=self._backend, timeout_s=self.timeout_s
            )
        except RuntimeError as error:
            self.close()
            raise LinkBrokenError(
                f"{self.me} cannot link up with {_names(members)}: {_first_line(error)}",
                hint="form the next generation with those that are alive",
            ) from error

    def post_receive(self, message: Operation, source: Worker, spec: TensorSpec) -> None:
        """Get ready for a message; does not block.

        Raises
        ------
        LinkBrokenError
            If the source has left.
        """
        self._receives[message] = self._begin(
            f"receive {message} from {source}", _group(message), "recv", spec.empty(self.device), source, _tag(message)
        )

    def wait(self, message: Operation) -> torch.Tensor:
        """Wait for a message that a receive was posted for.

        Raises
        ------
        LinkBrokenError
            If it cannot come any more, or has not in time.
        """
        if self._closed:
            raise LinkBrokenError(f"{self.me} cannot wait for {message}: its links are closed")
        return self._finish(self._receives.pop(message))

    def send(self, message: Operation, target: Worker, tensor: torch.Tensor) -> None:
        """Send a message without waiting until it has arrived.

        The tensor must stay as it is until :meth:`wait_sends`.

        Raises
        ------
        LinkBrokenError
            If the target has left, or an earlier message cannot be sent.
        """
        # A program runs even where each send waits for its receive, so waiting for an older one cannot block it for ever.
        if len(self._sends) >= MOST_PENDING_SENDS:
            self._finish(self._sends.popleft())
        self._sends.append(
            self._begin(
                f"send {message} to {target}", _group(message), "send", tensor.contiguous(), target, _tag(message)
            )
        )

    def wait_sends(self) -> None:
        """Wait until everything sent has left this process.

        Raises
        ------
        LinkBrokenError
            If something cannot be sent.
        """
        while self._sends:
            self._finish(self._sends.popleft())

    def all_reduce(self, tensors: Sequence[torch.Tensor]) -> None:
        """Sum tensors over the live workers of this slot, in place; every one gets the same bits.

        All of them must give tensors of the same shapes and types in the same order.

        Raises
        ------
        LinkBrokenError
            If one of them has left or does not come in time.
        """
        if len(self.peers) == 1 or not tensors:
            return
        for those in _buckets(tensors):
            flat = torch.cat([tensor.reshape(-1) for tensor in those])
            self._all_reduce(f"all-reduce of slot {self.me.slot} with {_names(self.peers)}", _PEERS, flat)
            parts = flat.split([tensor.numel() for tensor in those])
            for tensor, part in zip(those, parts, strict=True):
                tensor.copy_(part.view_as(tensor))

    def barrier(self) -> None:
        """Wait until every live worker is here.

        Raises
        ------
        LinkBrokenError
            If one of them has left or does not come in time.
        """
        if len(self.positions) > 1:
            self._all_reduce("barrier of all workers", _ALL, torch.ones(1, device=self.device))

    def give(self, target: Worker, tensors: Sequence[torch.Tensor]) -> None:
        """Copy tensors to one other worker, which takes as many of the same kinds at the same time; blocks.

        Raises
        ------
        LinkBrokenError
            If it has left or does not come in time.
        """
        for tensor in tensors:
            whole = tensor.detach().contiguous()
            self._finish(self._begin(f"copy a tensor of {spec_of(whole)} to {target}", _ALL, "send", whole, target, 0))

    def take(self, source: Worker, specs: Sequence[TensorSpec]) -> list[torch.Tensor]:
        """Tensors that one other worker gives; blocks.

        Raises
        ------
        LinkBrokenError
            If it has left or does not come in time.
        """
        return [
            self._finish(
                self._begin(f"copy a tensor of {spec} from {source}", _ALL, "recv", spec.empty(self.device), source, 0)
            )
            for spec in specs
        ]

    def close(self) -> None:
        """Leave: close every connection, so that all who wait for this worker stop waiting. May be called twice."""
        self._closed = True
        # A connection stays open while anything under way holds on to it.
        for pending in (*self._receives.values(), *self._sends):
            pending.work = None
        self._receives.clear()
        self._sends.clear()
        self._groups.clear()

    def __enter__(self) -> Links:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _begin(
        self, what: str, group: str, method: str, tensor: torch.Tensor, peer: Worker | None, tag: int
    ) -> _Pending:
        """Start one operation of a group; ``peer`` is ``None`` for a collective."""
        if self._closed:
            raise LinkBrokenError(f"{self.me} cannot {what}: its links are closed", peer=peer)
        try:
            # No name is bound to the group or the work: an error that somebody keeps would keep the connection open.
            arguments = ([tensor],) if peer is None else ([tensor], self._rank[peer], tag)
            return _Pending(getattr(self._groups[group], method)(*arguments), tensor, what, peer)
        except RuntimeError as error:
            raise LinkBrokenError(f"{self.me} cannot {what}: {_first_line(error)}", peer=peer) from error

    def _finish(self, pending: _Pending) -> torch.Tensor:
        try:
            pending.work.wait()
        except RuntimeError as error:
            raise LinkBrokenError(
                f"{self.me} cannot {pending.what}: {_first_line(error)}", peer=pending.peer
            ) from error
        finally:
            pending.work = None
        return pending.tensor

    def _all_reduce(self, what: str, group: str, tensor: torch.Tensor) -> None:
        self._finish(self._begin(what, group, "allreduce", tensor, None, 0))


def _buckets(tensors: Sequence[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Tensors of one type together, few at a time: they are copied to be summed."""
    for dtype in dict.fromkeys(tensor.dtype for tensor in tensors):
        bucket: list[torch.Tensor] = []
        size = 0
        for tensor in tensors:
            if tensor.dtype == dtype:
                bucket.append(tensor)
                size += tensor.nbytes
                if size >= BUCKET_BYTES:
                    yield bucket
                    bucket, size = [], 0
        if bucket:
            yield bucket


_FORWARD, _BACKWARD, _ALL, _PEERS = "forward", "backward", "all", "slot"


def _group(message: Operation) -> str:
    return _FORWARD if message.kind is Kind.F else _BACKWARD


def _tag(message: Operation) -> int:
    """A number for the message, so that gloo never takes one for another; nccl has the order only."""
    return zlib.crc32(str(message).encode("ascii")) & 0x7FFF_FFFF


def _names(workers: Sequence[Worker]) -> str:
    return " ".join(map(str, workers[:16])) + (f" and {len(workers) - 16} more" if len(workers) > 16 else "")


def _first_line(error: RuntimeError) -> str:
    return str(error).partition("\n")[0].partition(". This is typically")[0][:300]

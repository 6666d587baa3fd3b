"""Which GPU belongs to which worker: tensor, context, expert, pipeline and data parallelism.

Worker ``(k, s)`` of ``D`` pipelines x ``P`` slots has index ``k * P + s``, as in :mod:`planner.schedule`. A layout is given
either by a rank order, in which the global rank of a GPU is a mixed-radix number over the dimensions, or by a table that
names each worker's GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.errors import ProblemError
from planner.operation import Worker
from planner.topology import MAX_GPUS

IntArray: TypeAlias = npt.NDArray[np.int64]

DIMENSIONS = ("tp", "cp", "ep", "dp", "pp")
"""Tensor, context, expert, data and pipeline parallelism, by the letters Megatron uses for them."""

DEFAULT_RANK_ORDER = ("tp", "cp", "ep", "dp", "pp")
"""Megatron's default order, leftmost varying fastest."""


class Layout(Protocol):
    """What every layout offers, however it was given."""

    @property
    def num_pipelines(self) -> int:
        """``D``."""

    @property
    def num_slots(self) -> int:
        """``P``."""

    @property
    def gpus_per_worker(self) -> int:
        """GPUs of each worker."""

    @property
    def worker_gpus(self) -> IntArray:
        """GPUs of each worker, shape ``(D * P, gpus_per_worker)``, read-only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedLayout:
    """Layout by sizes and rank order; it uses GPUs ``0..size-1``, each once.

    ``data_parallel`` counts pipelines. With expert parallelism across data-parallel ranks a pipeline is one expert group,
    so ``data_parallel`` is Megatron's data-parallel size divided by ``expert_parallel``.

    Parameters
    ----------
    tensor_parallel, context_parallel, expert_parallel, pipeline_parallel, data_parallel
        Sizes, each at least 1; their product is the number of GPUs.
    rank_order
        Permutation of :data:`DIMENSIONS`, fastest varying first; dimensions of size 1 may be left out and are appended.
        Read it with :func:`order_from_megatron` or :func:`order_from_mesh`.

    Raises
    ------
    ProblemError
        If a size is below 1, the product is too large, or the order is not a permutation.
    """

    tensor_parallel: int = 1
    context_parallel: int = 1
    expert_parallel: int = 1
    pipeline_parallel: int
    data_parallel: int
    rank_order: tuple[str, ...] = DEFAULT_RANK_ORDER
    worker_gpus: IntArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        sizes = self.sizes()
        for name, size in sizes.items():
            if size < 1:
                raise ProblemError(f"the size of {name} is {size}; expected at least 1")
        object.__setattr__(self, "rank_order", _complete_order(self.rank_order, sizes))
        total = self.num_gpus
        if total > MAX_GPUS:
            raise ProblemError(f"the layout's sizes multiply to {total} GPUs; expected at most {MAX_GPUS}")
        # Rank order with the slowest dimension first is the order of a C array's axes.
        axes = tuple(reversed(self.rank_order))
        ranks = np.arange(total, dtype=np.int64).reshape([sizes[axis] for axis in axes])
        by_worker = ranks.transpose([axes.index(axis) for axis in ("dp", "pp", "ep", "cp", "tp")])
        gpus = np.sort(by_worker.reshape(self.num_pipelines * self.num_slots, self.gpus_per_worker), axis=1)
        gpus.setflags(write=False)
        object.__setattr__(self, "worker_gpus", gpus)

    def sizes(self) -> dict[str, int]:
        """Size of each dimension, by its letters."""
        return {
            "tp": self.tensor_parallel,
            "cp": self.context_parallel,
            "ep": self.expert_parallel,
            "dp": self.data_parallel,
            "pp": self.pipeline_parallel,
        }

    @property
    def num_pipelines(self) -> int:
        """``D``, the number of pipelines."""
        return self.data_parallel

    @property
    def num_slots(self) -> int:
        """``P``, the number of slots."""
        return self.pipeline_parallel

    @property
    def gpus_per_worker(self) -> int:
        """GPUs of each worker: tensor x context x expert parallel."""
        return self.tensor_parallel * self.context_parallel * self.expert_parallel

    @property
    def num_gpus(self) -> int:
        """Product of the sizes."""
        return self.gpus_per_worker * self.pipeline_parallel * self.data_parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class TableLayout:
    """Layout by an explicit table of each worker's GPUs; GPUs in no row are idle.

    Parameters
    ----------
    num_slots
        ``P``, at least 1.
    rows
        GPUs of each worker in order of its index ``k * P + s``; all rows equally long, no GPU twice.

    Raises
    ------
    ProblemError
        Naming the worker, if a row does not fit.
    """

    num_slots: int
    rows: tuple[tuple[int, ...], ...]
    worker_gpus: IntArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.num_slots < 1 or not self.rows or len(self.rows) % self.num_slots:
            raise ProblemError(f"a table of {len(self.rows)} workers does not fill {self.num_slots} slots a pipeline")
        length = len(self.rows[0])
        for index, row in enumerate(self.rows):
            if not row or len(row) != length:
                raise ProblemError(
                    f"worker {index // self.num_slots}/{index % self.num_slots} has {len(row)} GPUs; expected "
                    f"{max(length, 1)} as worker 0/0 has"
                )
        least, most = min(map(min, self.rows)), max(map(max, self.rows))
        if least < 0 or most >= MAX_GPUS:
            raise ProblemError(f"a table names GPUs {least}..{most}; expected 0..{MAX_GPUS - 1}")
        gpus = np.sort(np.array(self.rows, dtype=np.int64), axis=1)
        unique, first, counts = np.unique(gpus, return_index=True, return_counts=True)
        if counts.max() > 1:
            gpu, index = int(unique[counts.argmax()]), int(first[counts.argmax()]) // length
            raise ProblemError(
                f"GPU {gpu} stands {counts.max()} times, first at worker {index // self.num_slots}/{index % self.num_slots}; "
                "expected each GPU at most once"
            )
        gpus.setflags(write=False)
        object.__setattr__(self, "rows", tuple(tuple(row) for row in gpus.tolist()))
        object.__setattr__(self, "worker_gpus", gpus)

    @property
    def num_pipelines(self) -> int:
        """``D``, the number of pipelines."""
        return len(self.rows) // self.num_slots

    @property
    def gpus_per_worker(self) -> int:
        """GPUs of each worker."""
        return len(self.rows[0])


def order_from_megatron(text: str) -> tuple[str, ...]:
    """Rank order, fastest first, of a Megatron string, which is written with the leftmost fastest.

    Examples
    --------
    >>> order_from_megatron("tp-pp-dp")
    ('tp', 'pp', 'dp')
    """
    return tuple(text.split("-"))


def order_from_mesh(axes: Sequence[str]) -> tuple[str, ...]:
    """Rank order, fastest first, of a torch DeviceMesh's axes, which are written with the rightmost fastest.

    Examples
    --------
    >>> order_from_mesh(["dp", "pp", "tp"])
    ('tp', 'pp', 'dp')
    """
    return tuple(reversed(axes))


def _complete_order(order: tuple[str, ...], sizes: Mapping[str, int]) -> tuple[str, ...]:
    """The order with the dimensions of size 1 that it leaves out appended."""
    text = "-".join(order)
    for name in order:
        if name not in sizes:
            raise ProblemError(f"rank order {text} names {name!r}; expected a permutation of {', '.join(sizes)}")
        if order.count(name) > 1:
            raise ProblemError(
                f"rank order {text} names {name} {order.count(name)} times; expected each dimension once"
            )
    missing = [name for name in sizes if name not in order]
    for name in missing:
        if sizes[name] > 1:
            raise ProblemError(
                f"rank order {text} leaves out {name}, whose size is {sizes[name]}; expected a permutation of {', '.join(sizes)}"
            )
    return (*order, *missing)


def workers_on(layout: Layout, gpus: Iterable[int], num_gpus: int) -> frozenset[Worker]:
    """Workers that have at least one of these GPUs.

    Parameters
    ----------
    layout
        The layout.
    gpus
        GPUs, each 0 to ``num_gpus - 1``.
    num_gpus
        Number of GPUs of the topology, at least as many as the layout uses.
    """
    hit = np.zeros(num_gpus, dtype=np.bool_)
    hit[np.fromiter(gpus, dtype=np.int64)] = True
    indices = np.flatnonzero(hit[layout.worker_gpus].any(axis=1))
    return frozenset(Worker(index // layout.num_slots, index % layout.num_slots) for index in indices.tolist())


def worker_of_gpu(layout: Layout, gpu: int) -> Worker | None:
    """Worker that a GPU (global rank) belongs to; ``None`` where it is idle or does not exist."""
    rows = np.flatnonzero((layout.worker_gpus == gpu).any(axis=1))
    if rows.size == 0:
        return None
    return Worker(int(rows[0]) // layout.num_slots, int(rows[0]) % layout.num_slots)

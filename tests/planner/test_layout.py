"""Layouts: rank orders, tables, workers on GPUs."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import ProblemError
from planner.layout import (
    DIMENSIONS,
    OrderedLayout,
    TableLayout,
    order_from_megatron,
    order_from_mesh,
    worker_of_gpu,
    workers_on,
)
from planner.operation import Worker


def test_megatron_order_is_leftmost_fastest() -> None:
    """With tp-pp-dp, rank = tp + TP * (pp + PP * dp)."""
    layout = OrderedLayout(
        tensor_parallel=2, pipeline_parallel=3, data_parallel=2, rank_order=order_from_megatron("tp-pp-dp")
    )
    # Worker k/s starts at rank 2 * (s + 3 * k).
    assert layout.worker_gpus.tolist() == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]
    assert (layout.num_pipelines, layout.num_slots, layout.gpus_per_worker, layout.num_gpus) == (2, 3, 2, 12)


def test_default_order_puts_pipelines_before_slots() -> None:
    """With tp-cp-ep-dp-pp, rank = tp + TP * (dp + DP * pp)."""
    layout = OrderedLayout(tensor_parallel=2, pipeline_parallel=2, data_parallel=2)
    # Worker 0/0 is ranks 0-1, 0/1 starts at 2 * 2, 1/0 at 2, 1/1 at 6.
    assert layout.worker_gpus.tolist() == [[0, 1], [4, 5], [2, 3], [6, 7]]


def test_mesh_order_is_rightmost_fastest() -> None:
    """A DeviceMesh order read from the right is the Megatron order read from the left."""
    assert order_from_mesh(["dp", "pp", "tp"]) == order_from_megatron("tp-pp-dp")


def test_worker_gathers_gpus_that_are_apart() -> None:
    """Where tensor parallelism varies slowest, a worker's GPUs are far apart."""
    layout = OrderedLayout(
        tensor_parallel=2, pipeline_parallel=2, data_parallel=2, rank_order=order_from_megatron("pp-dp-tp")
    )
    # rank = pp + 2 * dp + 4 * tp.
    assert layout.worker_gpus.tolist() == [[0, 4], [1, 5], [2, 6], [3, 7]]


@given(st.permutations(DIMENSIONS), st.tuples(*[st.integers(1, 3)] * 5))
def test_rank_order_follows_its_formula(order: tuple[str, ...], counts: tuple[int, ...]) -> None:
    """Each worker has exactly the ranks whose mixed-radix digits are its pipeline and slot."""
    sizes = dict(zip(DIMENSIONS, counts, strict=True))
    layout = OrderedLayout(
        tensor_parallel=sizes["tp"],
        context_parallel=sizes["cp"],
        expert_parallel=sizes["ep"],
        data_parallel=sizes["dp"],
        pipeline_parallel=sizes["pp"],
        rank_order=tuple(order),
    )
    rows: dict[tuple[int, int], list[int]] = {}
    for digits in itertools.product(*(range(sizes[name]) for name in order)):
        rank, stride = 0, 1
        for name, digit in zip(order, digits, strict=True):
            rank, stride = rank + digit * stride, stride * sizes[name]
        at = dict(zip(order, digits, strict=True))
        rows.setdefault((at["dp"], at["pp"]), []).append(rank)
    assert layout.worker_gpus.tolist() == [sorted(rows[worker]) for worker in sorted(rows)]


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ("tp-pp", "leaves out dp"),
        ("tp-pp-dp-pp", "names pp 2 times"),
        ("tp-pp-dp-xx", "names 'xx'"),
        ("TP-pp-dp", "names 'TP'"),
        ("tp-pp-dp-", "names ''"),
        ("", "names ''"),
    ],
)
def test_order_that_is_no_permutation_is_refused(order: str, message: str) -> None:
    """A rank order names each dimension above 1 once and nothing else."""
    with pytest.raises(ProblemError, match=message):
        OrderedLayout(tensor_parallel=2, pipeline_parallel=2, data_parallel=2, rank_order=order_from_megatron(order))


def test_order_may_leave_out_dimensions_of_one() -> None:
    """Dimensions of size 1 are appended."""
    layout = OrderedLayout(pipeline_parallel=2, data_parallel=1, rank_order=("pp",))
    assert sorted(layout.rank_order) == sorted(DIMENSIONS)


@pytest.mark.parametrize(
    ("sizes", "message"), [((0, 2), "pp is 0"), ((2, -1), "dp is -1"), ((2**11, 2**10), "at most 1048576")]
)
def test_sizes_out_of_range_are_refused(sizes: tuple[int, int], message: str) -> None:
    """Sizes below 1 and products above the limit are refused."""
    with pytest.raises(ProblemError, match=message):
        OrderedLayout(pipeline_parallel=sizes[0], data_parallel=sizes[1])


def test_table_layout() -> None:
    """A table names each worker's GPUs; the rest are idle."""
    layout = TableLayout(num_slots=2, rows=((5, 4), (0, 1), (2, 3), (8, 9)))
    assert (layout.num_pipelines, layout.num_slots, layout.gpus_per_worker) == (2, 2, 2)
    assert layout.rows[0] == (4, 5)
    assert worker_of_gpu(layout, 8) == Worker(1, 1)
    assert worker_of_gpu(layout, 7) is None
    assert workers_on(layout, [7], 10) == frozenset()
    assert workers_on(layout, [4, 5, 2], 10) == {Worker(0, 0), Worker(1, 0)}
    assert workers_on(layout, [], 10) == frozenset()


@pytest.mark.parametrize(
    ("num_slots", "rows", "message"),
    [
        (0, ((0,),), "does not fill"),
        (2, ((0,), (1,), (2,)), "does not fill"),
        (1, (), "does not fill"),
        (1, ((),), "has 0 GPUs"),
        (1, ((0, 1), (2,)), "worker 1/0 has 1 GPUs"),
        (2, ((0,), (0,)), "GPU 0 stands 2 times"),
        (1, ((-1,),), r"expected 0\.\."),
        (1, ((2**20,),), r"expected 0\.\."),
        (1, ((2**70,),), r"expected 0\.\."),
    ],
)
def test_wrong_tables_are_refused(num_slots: int, rows: tuple[tuple[int, ...], ...], message: str) -> None:
    """Rows of unequal length, GPUs named twice and GPUs that cannot exist are refused."""
    with pytest.raises(ProblemError, match=message):
        TableLayout(num_slots=num_slots, rows=rows)


def test_worker_gpus_cannot_be_written() -> None:
    """The table of a layout is shared, so it is read-only."""
    layout = OrderedLayout(pipeline_parallel=2, data_parallel=2)
    with pytest.raises(ValueError, match="read-only"):
        layout.worker_gpus[0, 0] = 1

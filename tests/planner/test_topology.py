"""Topologies: counts, racks, GPUs of nodes."""

from __future__ import annotations

import pytest

from planner.errors import ProblemError
from planner.topology import Topology, uniform_racks


def test_gpus_and_nodes() -> None:
    """GPU g stands on node g // gpus_per_node."""
    topology = uniform_racks(("a", "b", "c"), 4, 2)
    assert (topology.num_nodes, topology.num_gpus) == (3, 12)
    assert topology.gpus_of_node("b") == range(4, 8)
    assert [topology.node_of_gpu(gpu) for gpu in (0, 3, 4, 11)] == ["a", "a", "b", "c"]
    assert (topology.racks, topology.rack_of_node) == (("rack0", "rack1"), (0, 0, 1))
    with pytest.raises(KeyError):
        topology.gpus_of_node("d")


def test_one_rack_without_a_size() -> None:
    """Without nodes_per_rack all nodes share a rack."""
    assert uniform_racks(("a", "b"), 1).rack_of_node == (0, 0)


@pytest.mark.parametrize(
    ("nodes", "gpus", "per_rack", "message"),
    [
        ((), 8, None, "no nodes"),
        (("a", "a"), 8, None, "node a stands 2 times"),
        (("a",), 0, None, "gpus_per_node is 0"),
        (("a",), 1025, None, "gpus_per_node is 1025"),
        (("a",), 8, 0, "nodes_per_rack is 0"),
        (tuple(f"n{i}" for i in range(1025)), 1024, None, "GPUs; expected at most 1048576"),
    ],
)
def test_wrong_counts_are_refused(nodes: tuple[str, ...], gpus: int, per_rack: int | None, message: str) -> None:
    """Counts out of range and names given twice are refused."""
    with pytest.raises(ProblemError, match=message):
        uniform_racks(nodes, gpus, per_rack)


@pytest.mark.parametrize(
    ("racks", "rack_of_node", "message"),
    [
        (("r", "r"), (0, 1), "rack r stands 2 times"),
        (("r",), (0,), "1 rack indices for 2 nodes"),
        (("r",), (0, 1), r"outside 0\.\.0"),
        (("r",), (-1, 0), r"outside 0\.\.0"),
    ],
)
def test_wrong_racks_are_refused(racks: tuple[str, ...], rack_of_node: tuple[int, ...], message: str) -> None:
    """Racks that do not fit the nodes are refused."""
    with pytest.raises(ProblemError, match=message):
        Topology(nodes=("a", "b"), gpus_per_node=1, racks=racks, rack_of_node=rack_of_node)

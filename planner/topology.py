"""The cluster: nodes in rank order, GPUs on each, and the racks they stand in."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from planner.errors import ProblemError

MAX_GPUS = 2**20
"""Most GPUs a topology may have, 1,048,576."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """Nodes with the same number of GPUs each, in racks.

    GPU ``g`` (what a launcher calls global rank ``g``) is GPU ``g % gpus_per_node`` of node ``g // gpus_per_node``,
    nodes counted in the order given here.

    Parameters
    ----------
    nodes
        Names of the nodes, each once, in rank order.
    gpus_per_node
        1 to 1,024.
    racks
        Names of the racks, each once.
    rack_of_node
        Index into ``racks`` of each node.

    Raises
    ------
    ProblemError
        If a name stands twice, a count is out of its range, or a rack index does not exist.
    """

    nodes: tuple[str, ...]
    gpus_per_node: int
    racks: tuple[str, ...]
    rack_of_node: tuple[int, ...]
    index_of_node: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.nodes:
            raise ProblemError("a topology has no nodes; expected at least one")
        if not 1 <= self.gpus_per_node <= 1024:
            raise ProblemError(f"gpus_per_node is {self.gpus_per_node}; expected 1 to 1024")
        if self.num_gpus > MAX_GPUS:
            raise ProblemError(f"a topology has {self.num_gpus} GPUs; expected at most {MAX_GPUS}")
        for what, names in (("node", self.nodes), ("rack", self.racks)):
            if len(set(names)) != len(names):
                twice = [name for name, count in Counter(names).items() if count > 1]
                raise ProblemError(f"{what} {twice[0]} stands {names.count(twice[0])} times; expected each {what} once")
        if len(self.rack_of_node) != len(self.nodes):
            raise ProblemError(
                f"{len(self.rack_of_node)} rack indices for {len(self.nodes)} nodes; expected one a node"
            )
        if not 0 <= min(self.rack_of_node) <= max(self.rack_of_node) < len(self.racks):
            raise ProblemError(f"rack indices run outside 0..{len(self.racks) - 1}")
        object.__setattr__(self, "index_of_node", {name: n for n, name in enumerate(self.nodes)})

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return len(self.nodes)

    @property
    def num_gpus(self) -> int:
        """Number of GPUs over all nodes."""
        return len(self.nodes) * self.gpus_per_node

    def node_of_gpu(self, gpu: int) -> str:
        """Name of the node that holds a GPU."""
        return self.nodes[gpu // self.gpus_per_node]

    def gpus_of_node(self, node: str) -> range:
        """GPUs on a node, ascending.

        Raises
        ------
        KeyError
            If there is no such node.
        """
        first = self.index_of_node[node] * self.gpus_per_node
        return range(first, first + self.gpus_per_node)


def uniform_racks(nodes: tuple[str, ...], gpus_per_node: int, nodes_per_rack: int | None = None) -> Topology:
    """Topology whose racks take ``nodes_per_rack`` nodes each in the order given; one rack for all where it is ``None``.

    Racks are named ``rack0``, ``rack1``, ...; the last may hold fewer nodes.

    Raises
    ------
    ProblemError
        As :class:`Topology` does, and if ``nodes_per_rack`` is below 1.

    Examples
    --------
    >>> uniform_racks(("a", "b", "c"), 8, 2).rack_of_node
    (0, 0, 1)
    """
    if nodes_per_rack is not None and nodes_per_rack < 1:
        raise ProblemError(f"nodes_per_rack is {nodes_per_rack}; expected at least 1")
    size = max(len(nodes), 1) if nodes_per_rack is None else nodes_per_rack
    return Topology(
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        racks=tuple(f"rack{r}" for r in range(-(-len(nodes) // size))),
        rack_of_node=tuple(n // size for n in range(len(nodes))),
    )

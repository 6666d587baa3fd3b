"""Foreign host names and the nodes of a job that they stand for."""

from __future__ import annotations

import pytest

from api.adapters.errors import ReportError
from api.adapters.node_names import NodeNames


@pytest.mark.parametrize(
    ("nodes", "name", "expected"),
    [
        (["gpu1", "gpu2"], "gpu2", "gpu2"),
        (["gpu1"], "gpu1.cluster.example", "gpu1"),
        (["gpu1.cluster.example"], "gpu1", "gpu1.cluster.example"),
        (["GPU1"], "gpu1.cluster.example", "GPU1"),
        (["gpu1.a.example"], "gpu1.b.example", None),
        (["gpu1.a.example", "gpu1.b.example"], "gpu1.b.example", "gpu1.b.example"),
        (["gpu1", "gpu1.b.example"], "gpu1.b.example", "gpu1.b.example"),
        (["gpu1", "gpu1.b.example"], "gpu1.c.example", "gpu1"),
        (["10.0.0.1", "10.0.0.2"], "10.0.0.2", "10.0.0.2"),
        (["10.0.0.1"], "10.0.0.3", None),
        (["10.0.0.1"], "10", None),
        (["n1"], "n01", None),
        (["n1"], "", None),
    ],
)
def test_names_are_compared_without_case_and_domain(nodes: list[str], name: str, expected: str | None) -> None:
    """One name has a domain and the other has none, or both are the same; addresses are not cut."""
    assert NodeNames(nodes).find(name, "here") == expected


def test_numbers_count_by_value_where_the_source_pads() -> None:
    """n[01,10] stands for n1 and n10; a node that has the name as it stands comes first."""
    names = NodeNames(["n1", "n10", "m07", "m7"], padded=True)
    assert [names.find(name, "") for name in ("n01", "n10", "n001", "m07", "m7", "n02", "n")] == [
        *("n1", "n10", "n1", "m07", "m7"),
        *(None, None),
    ]
    with pytest.raises(ReportError, match="line 3: name 'm007' may be m07 or m7"):
        names.find("m007", "line 3")


def test_a_name_of_two_nodes_is_refused() -> None:
    """A short name that two domains have is not decided by chance, nor one that differs by case only."""
    with pytest.raises(ReportError, match=r"line 1: name 'gpu1' may be gpu1.a.example or gpu1.b.example"):
        NodeNames(["gpu1.a.example", "gpu1.b.example"]).find("gpu1", "line 1")
    with pytest.raises(ReportError, match="may be A or a"):
        NodeNames(["A", "a"]).find("a.example", "")

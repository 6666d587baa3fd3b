"""Hostlists: expansion, compression, refusals."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import HostlistError
from planner.hostlist import MAX_HOSTLIST_CHARACTERS, compress_hostlist, expand_hostlist


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("login", ("login",)),
        ("n1,n2", ("n1", "n2")),
        ("n[1-3]", ("n1", "n2", "n3")),
        ("n[08-11]", ("n08", "n09", "n10", "n11")),
        ("n[8-11]", ("n8", "n9", "n10", "n11")),
        ("gpu[0007,0100-0101],login", ("gpu0007", "gpu0100", "gpu0101", "login")),
        ("r[1-2]n[1-2]", ("r1n1", "r1n2", "r2n1", "r2n2")),
        ("n[1-2].site-a", ("n1.site-a", "n2.site-a")),
        ("n[3,1]", ("n3", "n1")),
        ("n1,n1", ("n1", "n1")),
    ],
)
def test_expansion(text: str, names: tuple[str, ...]) -> None:
    """A hostlist stands for its names in the order written."""
    assert expand_hostlist(text) == names


@pytest.mark.parametrize(
    "text",
    [
        "",
        ",",
        "a,",
        ",a",
        "a,,b",
        "a b",
        " a",
        "a\n",
        "n[",
        "n]",
        "n[]",
        "n[1",
        "n1]",
        "n[1,]",
        "n[,1]",
        "n[1-]",
        "n[-1]",
        "n[1-2-3]",
        "n[3-1]",
        "n[a-b]",
        "n[[1]]",
        "n[08-9]",
        "n[1-02]",
        "n/1",
        "n\x00",
        "n[١-٢]",
        "n[" + "9" * 19 + "]",
    ],
)
def test_malformed_hostlist_is_refused(text: str) -> None:
    """A malformed hostlist is refused with a message that quotes it."""
    with pytest.raises(HostlistError):
        expand_hostlist(text)


@pytest.mark.parametrize("text", ["n[0-999999999999999999]", "n[1-1000][1-1000][1-1000]", "a," * 300_000 + "a"])
def test_large_hostlist_is_refused_unexpanded(text: str) -> None:
    """A hostlist that stands for more names than the limit is refused before it is expanded."""
    with pytest.raises(HostlistError, match="stands for more than"):
        expand_hostlist(text)


def test_limits_are_exact() -> None:
    """The limits on names and on characters are inclusive."""
    assert len(expand_hostlist("n[1-9]", max_hosts=9)) == 9
    with pytest.raises(HostlistError, match="more than 9 nodes"):
        expand_hostlist("n[0-9]", max_hosts=9)
    with pytest.raises(HostlistError, match="characters"):
        expand_hostlist("a" * (MAX_HOSTLIST_CHARACTERS + 1))


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["a"], "a"),
        (["n1"], "n1"),
        (["n1", "n2", "n4"], "n[1-2,4]"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["n9", "n10"], "n[9-10]"),
        (["n99", "n100"], "n[99-100]"),
        (["n2", "n1"], "n[2,1]"),
        (["r1n1", "r1n2", "r2n1"], "r1n[1-2],r2n1"),
    ],
)
def test_compression(names: list[str], text: str) -> None:
    """Neighbouring numbers become ranges, in the order given."""
    assert compress_hostlist(names) == text


@pytest.mark.parametrize("names", [[], [""], ["a b"], ["n[1]"], ["a,b"]])
def test_names_that_cannot_be_written_are_refused(names: list[str]) -> None:
    """No names, or a name with a character that hostlists use, cannot be compressed."""
    with pytest.raises(HostlistError):
        compress_hostlist(names)


@given(
    st.lists(
        st.from_regex(r"[a-z]{0,2}[0-9]{0,3}[-.a-z0-9]{0,3}", fullmatch=True).filter(bool), min_size=1, max_size=12
    )
)
def test_compressed_names_expand_to_themselves(names: list[str]) -> None:
    """Expanding what was compressed gives the same names in the same order."""
    assert expand_hostlist(compress_hostlist(names)) == tuple(names)


@given(st.text(alphabet="n01,-[] a", max_size=16))
def test_any_text_expands_or_is_refused(text: str) -> None:
    """No text raises anything but the hostlist error."""
    try:
        names = expand_hostlist(text, max_hosts=1000)
    except HostlistError:
        return
    assert all(names)

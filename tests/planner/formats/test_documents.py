"""YAML and JSON documents: limits and what has no plain meaning."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import DocumentLimitError, InputError, JobFileError, PlanFileError
from planner.formats.documents import MAX_DEPTH, Format, format_of, parse_document, read_text


@pytest.mark.parametrize("ending", ["yaml", "json"])
def test_large_file_is_refused(tmp_path: Path, ending: str) -> None:
    """A file of 200 MB is refused by its size; a sparse file, so nothing that large is written."""
    path = tmp_path / f"job.{ending}"
    with path.open("wb") as file:
        file.truncate(200_000_000)
    with pytest.raises(DocumentLimitError, match="200000000 bytes"):
        read_text(path)


def test_size_limit_is_inclusive(tmp_path: Path) -> None:
    """A file of exactly the limit is read."""
    path = tmp_path / "x"
    path.write_text("a" * 10)
    assert read_text(path, max_bytes=10) == "a" * 10
    with pytest.raises(DocumentLimitError):
        read_text(path, max_bytes=9)
    with pytest.raises(DocumentLimitError):
        parse_document("a" * 11, format="yaml", max_bytes=10)


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    """A missing file, a folder, a name no file can have and bytes that are not UTF-8 raise the caller's error."""
    (tmp_path / "latin").write_bytes(b"name: \xe9")
    for path in (tmp_path / "none", tmp_path, "a\0b", tmp_path / "latin"):
        with pytest.raises(PlanFileError):
            read_text(path, error=PlanFileError)


def test_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    """A byte order mark is no part of the text."""
    path = tmp_path / "x"
    path.write_bytes(b"\xef\xbb\xbfa: 1")
    assert read_text(path) == "a: 1"


@pytest.mark.parametrize(
    ("format_", "text"),
    [
        ("json", "[" * 10_000),
        ("json", "[" * 10_000 + "]" * 10_000),
        ("json", '{"a":' * 10_000 + "1" + "}" * 10_000),
        ("yaml", "[" * 10_000),
        ("yaml", "[" * 10_000 + "]" * 10_000),
        ("yaml", "{a: " * 10_000 + "1" + "}" * 10_000),
        ("yaml", "- " * 10_000 + "1"),
        ("yaml", "".join(" " * i + "a:\n" for i in range(1000))),
    ],
)
def test_deep_nesting_is_refused(format_: Format, text: str) -> None:
    """Deep nesting is refused as such, never by running out of stack."""
    with pytest.raises(DocumentLimitError, match="nested deeper"):
        parse_document(text, format=format_)


def test_long_texts_are_not_remembered_letter_by_letter() -> None:
    """Measuring the depth of a document takes no more memory than the document, however long its texts are."""
    text = json.dumps(["x" * 2_000_000, "\n" * 500_000])
    tracemalloc.start()
    try:
        parse_document(text, format="json")
        assert tracemalloc.get_traced_memory()[1] < 4 * len(text)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("format_", ["yaml", "json"])
def test_depth_limit_is_exact(format_: Format) -> None:
    """Nesting as deep as the limit is taken, one deeper is not; brackets in text do not count."""
    value: Any = parse_document("[" * MAX_DEPTH + "]" * MAX_DEPTH, format=format_)
    for _ in range(MAX_DEPTH - 1):
        (value,) = value
    assert value == []
    with pytest.raises(DocumentLimitError):
        parse_document("[" * (MAX_DEPTH + 1) + "]" * (MAX_DEPTH + 1), format=format_)
    assert parse_document('["' + "[" * 100 + '"]', format=format_) == ["[" * 100]


@pytest.mark.parametrize(
    ("format_", "text", "message"),
    [
        ("yaml", "a: 1\na: 2", "stands twice"),
        ("yaml", 'a: 1\n"a": 2', "stands twice"),
        ("yaml", "{b: {a: 1, a: 1}}", "stands twice"),
        ("json", '{"a": 1, "a": 1}', "stands twice"),
        ("json", '{"b": {"a": 1, "\\u0061": 2}}', "stands twice"),
        ("yaml", "a: .nan", "not a finite number"),
        ("yaml", "a: -.inf", "not a finite number"),
        ("yaml", "a: 1e999", "not a finite number"),
        ("json", '{"a": NaN}', "not a finite number"),
        ("json", '{"a": -Infinity}', "not a finite number"),
        ("json", '{"a": 1e999}', "not a finite number"),
        ("yaml", "a: " + "9" * 5000, "digits"),
        ("json", "9" * 5000, "digits"),
        ("yaml", "a: &x 1", "anchor"),
        ("yaml", "a: *x", "alias"),
        ("yaml", "a: !!python/object:os.system 1", "tag"),
        ("yaml", "a: 1\n---\nb: 1", "second document"),
        ("yaml", "? [a]\n: 1", "expected text"),
        ("yaml", "a: [1", "malformed YAML"),
        ("yaml", "a: \x00", "malformed YAML"),
        ("json", '{"a": ', "line 1, column 7"),
        ("json", "", "malformed JSON"),
    ],
)
def test_what_has_no_plain_meaning_is_refused(format_: Format, text: str, message: str) -> None:
    """Duplicate keys, numbers that are none, and YAML's extras are refused."""
    with pytest.raises(JobFileError, match=message):
        parse_document(text, format=format_)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("no", "no"),
        ("0007", "0007"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("true", True),
        ("~", None),
        ("'1'", "1"),
        ("80_000_000", 80_000_000),
        ("1_2", "1_2"),
        ("1e3", 1000.0),
        ("-0.5", -0.5),
    ],
)
def test_plain_yaml_scalars(word: str, value: object) -> None:
    """Plain scalars follow YAML 1.2, so node names stay text."""
    found = parse_document(f"a: {word}", format="yaml")["a"]
    assert found == value
    assert type(found) is type(value)


def test_format_by_ending_and_content() -> None:
    """The ending decides, then the first character."""
    assert format_of("a.json", "") == "json"
    assert format_of("a.YML", "{") == "yaml"
    assert format_of("a", " {") == "json"
    assert format_of("a", "b: 1") == "yaml"


@given(st.text(max_size=40), st.sampled_from(["yaml", "json"]))
def test_any_text_is_read_or_refused(text: str, format_: Format) -> None:
    """No text raises anything but an input error."""
    try:
        parse_document(text, format=format_)
    except InputError:
        return


def test_half_a_surrogate_pair_is_refused() -> None:
    """YAML text that no encoding can write raises the input error."""
    with pytest.raises(JobFileError, match="character 3 is half a surrogate pair"):
        parse_document('["\ud800"]', format="yaml")

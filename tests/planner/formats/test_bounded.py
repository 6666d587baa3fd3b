"""Long lists and mappings of documents: checked in pieces, with few faults and true places."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from pydantic import ConfigDict, Field, ValidationError

from planner.formats.bounded import MAX_UNKNOWN, PIECE, AtMost, BoundedModel, place_of

MOST = 5 * PIECE


class Entry(BoundedModel):
    """An entry of a list."""

    model_config = ConfigDict(extra="forbid", strict=True)
    size: int = 0


class Model(BoundedModel):
    """A list, a mapping of lists, and a union."""

    model_config = ConfigDict(extra="forbid", strict=True)
    entries: Annotated[list[Entry], AtMost(MOST)] = Field(default=[])
    table: Annotated[dict[str, Annotated[list[int], AtMost(MOST)]], AtMost(MOST)] = Field(default={})
    either: str | Annotated[list[int], AtMost(MOST)] = ""


def faults_of(**document: Any) -> list[tuple[tuple[int | str, ...], str]]:
    """Places and kinds of the faults of a document."""
    with pytest.raises(ValidationError) as caught:
        Model.model_validate(document)
    return [(item["loc"], item["type"]) for item in caught.value.errors()]


@pytest.mark.parametrize("length", [0, 1, PIECE, PIECE + 1, MOST])
def test_what_is_sound_comes_out_whole(length: int) -> None:
    """Lists and mappings of up to the most entries are what they would be without pieces, in their order."""
    numbers = list(range(length))
    table = {str(n): numbers for n in range(length)}
    model = Model.model_validate({"entries": [{"size": n} for n in numbers], "table": table, "either": numbers})
    assert [entry.size for entry in model.entries] == numbers == model.either
    assert list(model.table.items()) == list(table.items())


def test_one_more_than_the_most_is_refused_as_such() -> None:
    """Whatever the entries are, too many of them are one fault."""
    assert faults_of(entries=["x"] * (MOST + 1)) == [(("entries",), "too_long")]
    assert faults_of(table={str(n): "x" for n in range(MOST + 1)}) == [(("table",), "too_long")]


def test_faults_name_their_places_in_the_whole() -> None:
    """An entry of a later piece is named by its index in the list, and keeps the kind of its fault."""
    entries: list[Any] = [{}] * (2 * PIECE) + [{"size": "1"}, {"other": 1}]
    assert faults_of(entries=entries) == [
        (("entries", 2 * PIECE, "size"), "int_type"),
        (("entries", 2 * PIECE + 1, "other"), "extra_forbidden"),
    ]
    assert faults_of(table={"a": [0] * PIECE + ["x"]}) == [(("table", "a", PIECE), "int_type")]


def test_faults_are_few_however_many_there_are() -> None:
    """The first faulty piece ends a list or a mapping, and an entry tells a few of its unknown keys."""
    assert len(faults_of(entries=["x"] * MOST)) == PIECE
    assert len(faults_of(table={str(n): ["x"] * MOST for n in range(MOST)})) == PIECE * PIECE
    assert len(faults_of(**{f"k{n}": n for n in range(10_000)})) == MAX_UNKNOWN
    assert len(faults_of(entries=[{f"k{n}": n for n in range(1000)}])) == MAX_UNKNOWN


def test_other_types_are_refused_as_ever() -> None:
    """What is no list and no mapping is told as without pieces."""
    assert faults_of(entries={"a": 1}) == [(("entries",), "list_type")]
    assert faults_of(table=[1]) == [(("table",), "dict_type")]


def test_the_most_is_told_in_the_json_schema() -> None:
    """Programs that read the schema learn the lengths."""
    told = Model.model_json_schema()["properties"]
    assert told["entries"]["maxItems"] == told["table"]["maxProperties"] == MOST
    assert told["table"]["additionalProperties"]["maxItems"] == MOST


@pytest.mark.parametrize(
    ("location", "is_missing", "steps"),
    [
        (("either", "function-wrap[_check()]", 1), False, ("either", 1)),
        (("either", "str"), False, ("either",)),
        (("table", "a"), True, ("table", "a")),
        (("table", "a"), False, ("table",)),
    ],
)
def test_places_leave_out_the_members_of_unions(
    location: tuple[int | str, ...], is_missing: bool, steps: tuple[int | str, ...]
) -> None:
    """Only what stands in the document is part of a place, and what should stand there."""
    assert place_of(location, {"either": [5, "x"], "table": {}}, is_missing=is_missing)[0] == steps

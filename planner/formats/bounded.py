"""Checking long documents without a heap of faults: pydantic collects every one of them before it says anything.

A document of a few megabytes can hold a million faults, each of which costs a kilobyte and ten microseconds to tell. So long
lists and mappings are checked a piece at a time, where the first faulty piece ends it, and of unknown keys only the first
few are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pydantic import BaseModel, GetCoreSchemaHandler, GetJsonSchemaHandler, ValidationError, model_validator
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

PIECE = 32
"""Entries that are checked together, and so the most faults that one list or mapping can tell of its entries."""

MAX_UNKNOWN = 8
"""Most unknown keys of one mapping that are told."""


@dataclass(frozen=True, slots=True)
class AtMost:
    """What a field of a pydantic model is annotated with whose list or mapping may be long.

    Parameters
    ----------
    length
        Most entries it may have, :data:`PIECE` or more; one that has more is refused before any is looked at.

    Examples
    --------
    ``ranks: Annotated[list[int], AtMost(65_536)]``
    """

    length: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_wrap_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        told = handler(schema)
        told["maxItems" if told.get("type") == "array" else "maxProperties"] = self.length
        return told

    def _check(self, value: Any, handler: core_schema.ValidatorFunctionWrapHandler) -> Any:
        if not isinstance(value, (list, dict)) or len(value) <= PIECE:
            return handler(value)
        if len(value) > self.length:
            raise PydanticCustomError(
                "too_long",
                "Input should have at most {most} entries, not {found}",
                {"most": self.length, "found": len(value)},
            )
        if isinstance(value, list):
            return [made for start in range(0, len(value), PIECE) for made in _piece(value, start, handler)]
        return {key: made for piece in _pieces(value) for key, made in handler(piece).items()}


class BoundedModel(BaseModel):
    """A model that forbids unknown keys, and tells the first :data:`MAX_UNKNOWN` only."""

    @model_validator(mode="before")
    @classmethod
    def _few_unknown(cls, data: Any) -> Any:
        known = cls.model_fields
        if not isinstance(data, dict) or len(data) <= len(known) + MAX_UNKNOWN:
            return data
        unknown = islice((key for key in data if key not in known), MAX_UNKNOWN)
        return {key: data[key] for key in (*known, *unknown) if key in data}


def place_of(
    location: Sequence[int | str], document: Any, *, is_missing: bool = False
) -> tuple[tuple[int | str, ...], Any]:
    """Keys and indices that lead to a fault in a document, and what stands there.

    pydantic names the members of a union among them, which are no part of the document.

    Parameters
    ----------
    location
        pydantic's ``loc`` of the fault.
    document
        What was checked.
    is_missing
        Whether the fault is that nothing stands there.
    """
    steps: list[int | str] = []
    for position, step in enumerate(location):
        is_there = (isinstance(document, dict) and step in document) or (
            isinstance(document, list) and isinstance(step, int) and 0 <= step < len(document)
        )
        if is_there:
            document = document[step]
        elif not (is_missing and position == len(location) - 1):
            continue
        steps.append(step)
    return tuple(steps), document


def _piece(values: list[Any], start: int, handler: core_schema.ValidatorFunctionWrapHandler) -> list[Any]:
    """Check some entries of a list; its faults name their places in the whole."""
    try:
        return list(handler(values[start : start + PIECE]))
    except ValidationError as error:
        raise ValidationError.from_exception_data(
            error.title,
            [
                InitErrorDetails(
                    type=PydanticCustomError(item["type"], "{said}", {"said": item["msg"]}),
                    loc=(int(item["loc"][0]) + start, *item["loc"][1:]),
                    input=item["input"],
                )
                for item in error.errors(include_url=False, include_context=False)
            ],
        ) from error


def _pieces(values: dict[Any, Any]) -> Iterator[dict[Any, Any]]:
    items = iter(values.items())
    while piece := dict(islice(items, PIECE)):
        yield piece
